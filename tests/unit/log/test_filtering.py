"""Reads that leave out aborted batches (rows I4, I5): fewer bytes, and the same records for every client."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from fencepost.broker.log import filtering
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import ReadResult, read_batches
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.protocol.batch_header import BatchHeader, iter_headers
from fencepost.protocol.errors import ErrorCode
from tests.kit.late_log_store import LateLogStore
from tests.unit.log.kit import (
    COMMITTED,
    SMALL,
    TOPIC_ID,
    TP,
    UNCOMMITTED,
    batch,
    end,
    headers,
    joined,
    late_log,
    log_file,
    over,
    send,
    settle,
    transact,
)

MANY = 1 << 20


def read(log: PartitionLog, offset: int, max_bytes: int = MANY, *, filtered: bool = True) -> ReadResult:
    return read_batches(log, offset, max_bytes, COMMITTED, budget=filtering.FilterBudget() if filtered else None)


def found(result: ReadResult) -> list[BatchHeader]:
    data = joined(result.parts)
    assert len(data) == result.size_bytes
    got = [header for _, header in iter_headers(data)]
    assert sum(header.size_bytes for header in got) == len(data), "whole batches only"
    return got


def offsets(result: ReadResult) -> list[int]:
    return [header.base_offset for header in found(result)]


def consumed(log: PartitionLog, offset: int, max_bytes: int, *, filtered: bool) -> Iterator[int]:
    """The base offsets of the batches that a client returns, by the rule of Kafka's CompletedFetch.java.

    Aborted transactions wait in the order of their first offsets; a batch that reaches one puts its producer into a
    set, an abort marker takes it out, and transactional batches of producers in the set are skipped.
    """
    while True:
        result = read(log, offset, max_bytes, filtered=filtered)
        assert not result.error, result
        assert result.aborted is not None
        waiting, aborted = sorted(result.aborted, key=lambda entry: entry[1]), set[int]()
        batches = found(result)
        if not batches:
            assert offset >= log.last_stable_offset, "a client that gets nothing would ask for the same for ever"
            return
        for header in batches:
            while waiting and waiting[0][1] <= header.base_offset + header.last_offset_delta:
                aborted.add(waiting.pop(0)[0])
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                yield header.base_offset
        assert batches[-1].next_offset > offset, "the position moves on"
        offset = batches[-1].next_offset


def test_i4_aborted_batches_are_left_out_and_the_markers_stay():
    log = over(MemoryStore())
    transact(log, 7, 0, 0)  # 0, aborted
    transact(log, 8, 0, 0)  # 1, committed
    send(log, batch())  # 2, no transaction
    transact(log, 7, 0, 1)  # 3, aborted
    end(log, 7, 0, commit=False)  # 4
    end(log, 8, 0, commit=True)  # 5
    transact(log, 7, 0, 2)  # 6, the same producer commits
    end(log, 7, 0, commit=True)  # 7
    result = read(log, 0)
    assert offsets(result) == [1, 2, 4, 5, 6, 7]
    assert result.aborted == [(7, 0)], "as without the filter"
    assert offsets(read(log, 0, filtered=False)) == list(range(8))
    assert [h.base_offset for h in headers(log, UNCOMMITTED)] == list(range(8)), "read_uncommitted sees all"


def test_without_an_aborted_transaction_nothing_is_looked_at(monkeypatch):
    monkeypatch.setattr(filtering, "_sift", None)
    log = over(MemoryStore())
    transact(log, 7, 0, 0)
    end(log, 7, 0, commit=True)
    assert offsets(read(log, 0)) == [0, 1]


def test_a_read_goes_on_past_aborted_batches_until_it_has_enough():
    log = over(MemoryStore(), SMALL)
    for number in range(200):
        transact(log, 7, 0, number)
    end(log, 7, 0, commit=False)  # 200
    for _ in range(5):
        send(log, batch())
    size_bytes = found(read(log, 201))[0].size_bytes
    assert offsets(read(log, 0, 3 * size_bytes + 20)) == [200, 201, 202], "a marker is about as long"
    assert offsets(read(log, 0, 100 * size_bytes)) == list(range(200, 206))


def test_i5_if_no_batch_stays_the_last_aborted_one_moves_the_reader_on(monkeypatch):
    monkeypatch.setattr(filtering, "BATCHES_MAX", 10)
    log = over(MemoryStore())
    for number in range(35):
        transact(log, 7, 0, number)
    end(log, 7, 0, commit=False)
    size_bytes = found(read(log, 0, filtered=False))[0].size_bytes
    got, offset = [], 0
    while offset < log.last_stable_offset:
        result = read(log, offset, 10 * size_bytes)
        got.append(offsets(result))
        assert result.aborted == [(7, 0)], "a client leaves that batch out by itself"
        offset = found(result)[-1].next_offset
    assert got == [[9], [19], [29], [35]]
    assert list(consumed(log, 0, 10 * size_bytes, filtered=True)) == []


def test_a_fetch_that_has_looked_at_many_batches_leaves_the_rest_to_its_client(monkeypatch):
    """A fetch of very many partitions would keep the event loop busy."""
    monkeypatch.setattr(filtering, "BATCHES_MAX", 10)
    log = over(MemoryStore())
    for number in range(12):
        transact(log, 7, 0, number)
    end(log, 7, 0, commit=False)
    looks = filtering.FilterBudget()
    assert offsets(read_batches(log, 0, MANY, COMMITTED, budget=looks)) == [12]
    rest = read_batches(log, 0, MANY, COMMITTED, budget=looks)
    assert (offsets(rest), rest.aborted) == ([*range(13)], [(7, 0)])


def test_what_does_not_fit_is_not_read():
    """As without the filter: whoever has no room left gets nothing, and the first batch of all comes whole."""
    log = over(MemoryStore())
    transact(log, 7, 0, 0)
    end(log, 7, 0, commit=False)
    send(log, batch(value=bytes(5000)))
    assert read_batches(log, 0, 0, COMMITTED, False, filtering.FilterBudget()).parts == []
    assert offsets(read(log, 0, 100)) == [1]
    assert offsets(read(log, 2, 100)) == [2]


def test_only_the_batches_of_the_transaction_are_left_out():
    """Before and after it the same producer may write what is no transaction, if it is an old client's."""
    log = over(MemoryStore())
    send(log, batch(1, 7, 0, 0))
    transact(log, 7, 0, 1)
    end(log, 7, 0, commit=False)
    send(log, batch(1, 7, 0, 2))
    assert offsets(read(log, 0)) == [0, 2, 3]


def test_open_transactions_stay_out_of_sight():
    log = over(MemoryStore())
    transact(log, 7, 0, 0)
    end(log, 7, 0, commit=False)
    transact(log, 8, 0, 0)
    send(log, batch())
    assert offsets(read(log, 0)) == [1]
    assert read(log, 2).parts == []


def test_bytes_that_are_elsewhere_are_waited_for_or_left_for_the_next_read():
    store = LateLogStore(MemoryStore())
    log = late_log(store, SMALL)
    for number in range(40):
        transact(log, 7, 0, number)
        settle(log)
    end(log, 7, 0, commit=False)
    send(log, batch())
    settle(log)
    assert list(consumed(log, 0, 500, filtered=True)) == [41]


def test_a_damaged_header_is_reported():
    store = MemoryStore()
    log = over(store)
    transact(log, 7, 0, 0)
    transact(log, 7, 0, 1)
    end(log, 7, 0, commit=False)
    log_file(store).data[16] = 9  # the magic
    assert read(log, 0).error is ErrorCode.CORRUPT_MESSAGE


def random_log(log: PartitionLog, random: Random) -> None:
    """Some producers' transactions, interleaved, with plain batches between them; sizes around those of pieces."""
    sequences, open_now = dict.fromkeys(range(5), 0), set[int]()
    for _ in range(random.randint(20, 120)):
        producer = random.choice(list(sequences))
        if producer in open_now and random.random() < 0.3:
            end(log, producer, 0, commit=random.random() < 0.4)
            open_now.discard(producer)
        elif random.random() < 0.15:
            send(log, batch(random.randint(1, 3)))
        else:
            count, size = random.randint(1, 3), random.choice((1, 50, 700, 9_000, 40_000))
            data = batch(count, producer, 0, sequences[producer], transactional=True, value=bytes(size))
            assert not send(log, data).error
            sequences[producer] += count
            open_now.add(producer)
    for producer in open_now:
        end(log, producer, 0, commit=random.random() < 0.4)


@pytest.mark.parametrize("seed", range(40))
def test_clients_see_the_same_with_and_without_the_filter(tmp_path: Path, seed: int, monkeypatch) -> None:
    """From any offset, with any limit of bytes and of batches, in memory and in files (regions of them, and copies)."""
    random = Random(seed)
    monkeypatch.setattr(filtering, "BATCHES_MAX", random.choice((1, 3, 1000)))
    monkeypatch.setattr(filtering, "_WINDOW_BYTES", random.choice((61, 200, 16 << 10)))
    config = LogConfig(segment_bytes=random.choice((130_000, 1 << 30)), index_interval_bytes=100)
    if random.random() < 0.3:
        log = over(MemoryStore(), config)
    else:
        log = LogManager.over(FileStore(tmp_path), "os").create(TP, TOPIC_ID, config)
    random_log(log, random)
    saved = 0
    for _ in range(10):
        offset, max_bytes = random.randrange(log.log_end_offset), random.choice((100, 3000, 60_000, MANY))
        wanted = list(consumed(log, offset, max_bytes, filtered=False))
        assert list(consumed(log, offset, max_bytes, filtered=True)) == wanted
        saved += read(log, offset, filtered=False).size_bytes - read(log, offset).size_bytes
    assert saved > 0
