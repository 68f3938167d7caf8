"""What every LogStore has to do: Kafka's segment files on disk and in memory, and one that binds offsets late."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from fencepost.broker.log.log_store import Conflict, LogStore, Missing, StoredLog
from fencepost.broker.log.recovery.opening import ALL_TRUSTED
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.segment_store import SegmentStore
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.batch_header import assign_offset, iter_headers, read_header
from tests.kit.late_log_store import LateLogStore, SharedRows
from tests.unit.log.kit import DEFAULTS, NOW_MS, SMALL, batch, joined

LOG = "events-0"


@pytest.fixture(params=["files", "memory", "late"])
def store(request, tmp_path) -> LogStore:
    if request.param == "late":
        return LateLogStore(MemoryStore())
    return SegmentStore(FileStore(tmp_path) if request.param == "files" else MemoryStore())


TINY = replace(SMALL, segment_bytes=1000)


def opened(store: LogStore, trusted_offset: int = 0) -> StoredLog:
    return store.open(LOG, TINY, 0, trusted_offset).segments


def append(log: StoredLog, expected_offset: int, count: int = 1, timestamp_ms: int = NOW_MS) -> Conflict | None:
    """One batch of `count` records for `expected_offset`, in a new piece where it is time for one."""
    data = batch(count, timestamp_ms=timestamp_ms)
    assign_offset(data, 0, expected_offset, 0)
    header = read_header(data)
    if log.must_roll(len(data), header, NOW_MS, TINY):
        log.roll(NOW_MS)
    conflict = log.append(expected_offset, data, header, TINY)
    if log.late is not None:
        sync(log)
        log.late.deliver()
    return conflict


def fill(log: StoredLog, batches: int, count: int = 2) -> None:
    for _ in range(batches):
        assert append(log, log.end_offset, count, NOW_MS + log.end_offset) is None


def base_offsets(log: StoredLog, start: int, stop: int, max_bytes: int = 1 << 20) -> list[int]:
    extent = log.read(start, stop, max_bytes, True)
    data = joined(extent.parts)
    assert len(data) == extent.size_bytes
    return [header.base_offset for _, header in iter_headers(data)]


def sync(log: StoredLog) -> None:
    for target in log.sync_targets():
        target.sync()


def test_a_new_log_is_empty(store):
    log = opened(store)
    assert (log.first_offset, log.end_offset, log.size_bytes, len(log)) == (0, 0, 0, 1)
    assert base_offsets(log, 0, 0) == []


def test_an_append_where_the_log_ends_takes_place(store):
    log = opened(store)
    assert append(log, 0, 3) is None
    assert append(log, 3) is None
    assert log.end_offset == 4
    assert base_offsets(log, 0, 4) == [0, 3]


@pytest.mark.parametrize("expected_offset", [0, 2, 4, 1000])
def test_an_append_elsewhere_is_a_conflict_and_changes_nothing(store, expected_offset):
    log = opened(store)
    fill(log, 1, 3)
    before = log.size_bytes
    assert append(log, expected_offset) == Conflict(expected_offset, 3)
    assert (log.end_offset, log.size_bytes) == (3, before)
    assert base_offsets(log, 0, 3) == [0]
    assert append(log, 3) is None, "the same append succeeds where the log really ends"


def test_of_two_writers_who_saw_the_same_end_one_gets_a_conflict(store):
    log = opened(store)
    fill(log, 2)
    seen = log.end_offset
    assert [append(log, seen), append(log, seen)] == [None, Conflict(seen, seen + 1)]


def test_reads_give_whole_batches_below_the_bound_across_pieces(store):
    log = opened(store)
    fill(log, 40)
    assert len(log) > 2
    everything = list(range(0, 80, 2))
    assert base_offsets(log, 0, 80) == everything
    assert base_offsets(log, 31, 50) == list(range(30, 50, 2)), "from the batch that holds the offset"
    assert base_offsets(log, 0, 80, max_bytes=1) == [0], "one batch comes whatever its size"
    assert log.read(0, 80, 1, False).size_bytes == 0
    assert log.bytes_between(0, 80) == log.size_bytes
    assert log.bytes_between(30, 32) == log.read(30, 32, 1 << 20, True).size_bytes


def test_aborted_transactions_come_in_the_order_of_their_beginning(store):
    """I2: sorted and complete, from any number of pieces."""
    log = opened(store)
    fill(log, 10)
    log.note_aborted(AbortedTransaction(2, 4, 19, 1))
    fill(log, 30)
    assert len(log) > 1
    log.note_aborted(AbortedTransaction(1, 0, 79, 80))
    assert [entry.first_offset for entry in log.aborted_between(0, 80)] == [0, 4]
    assert [entry.first_offset for entry in log.aborted_between(20, 80)] == [0]
    assert log.aborted_between(0, 0) == []


def test_records_are_found_by_their_time(store):
    log = opened(store)
    fill(log, 40)
    assert log.first_at_or_after(NOW_MS + 31, 0, 80) == (NOW_MS + 32, 32)
    assert log.first_at_or_after(NOW_MS + 31, 0, 32) is None, "not beyond the bound"
    assert log.first_at_or_after(NOW_MS + 1000, 0, 80) is None
    assert log.latest(0, 80) == (NOW_MS + 78, 78)
    assert log.latest(0, 50) == (NOW_MS + 48, 48)


def test_the_oldest_pieces_go_and_the_rest_stays(store):
    log = opened(store)
    fill(log, 40)
    facts = log.facts()
    assert len(facts) == len(log) > 2
    log.drop_front(2)
    assert log.first_offset == facts[1].next_offset
    assert base_offsets(log, log.first_offset, 80) == list(range(log.first_offset, 80, 2))
    assert log.size_bytes == sum(fact.size_bytes for fact in facts[2:])


def test_a_log_opened_again_is_what_it_was(store):
    log = opened(store)
    fill(log, 40)
    log.note_aborted(AbortedTransaction(1, 0, 79, 80))
    sync(log)
    assert log.flush_indexes()
    log.close()
    again = opened(store, ALL_TRUSTED)
    assert (again.first_offset, again.end_offset, again.size_bytes, len(again)) == (0, 80, log.size_bytes, len(log))
    assert base_offsets(again, 0, 80) == base_offsets(log, 0, 80)
    assert append(again, 79) == Conflict(79, 80)
    assert append(again, 80) is None


def test_an_empty_piece_says_where_offsets_go_on(store):
    log = opened(store)
    fill(log, 2)
    log.roll(NOW_MS)
    log.create()
    log.drop_front(1)
    log.close()
    again = opened(store, ALL_TRUSTED)
    assert (again.first_offset, again.end_offset) == (4, 4)


def test_logs_are_listed_renamed_and_deleted(store):
    fill(opened(store), 1)
    other = store.open("orders-3", DEFAULTS, 0, 0).segments
    fill(other, 1)
    assert sorted(store.names()) == [LOG, "orders-3"]
    store.rename("orders-3", "orders-3.old")
    for removal in store.delete(LOG, f"{LOG}.gone"):
        removal.sync()
    assert store.names() == ["orders-3.old"]
    assert opened(store).end_offset == 0


def test_bytes_that_are_not_here_are_missed_until_they_arrived():
    """A read says so, finds nothing meanwhile, and the listener hears when it may try again."""
    store = LateLogStore(MemoryStore())
    log = opened(store)
    fill(log, 10)
    log.absent = range(4, 8)
    listener = Listener()
    log.follow(listener)
    missed = [log.read(0, 20, 1 << 20, True).missing, log.first_at_or_after(NOW_MS, 0, 20), log.latest(0, 20)]
    assert all(isinstance(missing, Missing) and not missing.arrived for missing in missed)
    assert base_offsets(log, 8, 20) == list(range(8, 20, 2)), "what is here can be read"
    log.fetch_absent()
    assert all(missing.arrived for missing in missed)
    assert listener.arrivals == 1
    assert base_offsets(log, 0, 20) == list(range(0, 20, 2))


def test_two_brokers_write_to_one_late_log():
    """Each gets the other's rows before its own are bound behind them; of one producer's rows the second is refused."""
    database: dict[str, SharedRows] = {}
    logs = [opened(LateLogStore(MemoryStore(), database)) for _ in range(2)]
    listeners = [Listener(), Listener()]
    for log, listener, producer in zip(logs, listeners, (7, 8), strict=True):
        log.follow(listener)
        listener.again = partial(place, log, batch(1, producer, 0, 0))
        listener.again()
    for log in logs:
        sync(log)
        log.late.deliver()
    assert listeners[0].ends == [1]
    assert (listeners[1].seen, listeners[1].ends) == ([7], [2])
    assert len(logs[1].rows.since(0)) == 2


def place(log: StoredLog, data: bytearray) -> None:
    """Append `data` where the log ends, without a commit."""
    assign_offset(data, 0, log.end_offset, 0)
    assert log.append(log.end_offset, data, read_header(data), TINY) is None


class Listener:
    """Appends one batch again whenever other rows came first."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.seen: list[int] = []
        self.arrivals = 0
        self.again: Callable[[], None] = lambda: None

    def bound(self, end_offset: int) -> None:
        self.ends.append(end_offset)

    def foreign(self, rows: Sequence[bytes]) -> None:
        self.seen += [read_header(row).producer_id for row in rows]
        self.again()

    def arrived(self) -> None:
        self.arrivals += 1
