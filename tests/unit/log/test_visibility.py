"""What readers of either isolation level see (rows I1 to I3, I6, I7)."""

import pytest

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.reading import offset_for_timestamp, read_batches, readable_bytes
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.protocol.errors import ErrorCode
from tests.kit.trimming import delete_records
from tests.unit.log.kit import (
    COMMITTED,
    NOW_MS,
    UNCOMMITTED,
    batch,
    crashed,
    end,
    headers,
    joined,
    over,
    send,
    settle,
    transact,
)


class Bell:
    def __init__(self):
        self.rings = 0

    def wake(self):
        self.rings += 1


def test_i1_the_oldest_open_transaction_holds_the_lso():
    log = over(MemoryStore())
    send(log, batch())
    transact(log, 7, 0, 0)
    transact(log, 8, 0, 0)
    assert (log.last_stable_offset, log.producers.first_unstable_offset(3), log.high_watermark) == (1, 1, 3)
    end(log, 7, 0, commit=True)
    assert log.last_stable_offset == 2, "the other one is still open"
    end(log, 8, 0, commit=False)
    assert (log.last_stable_offset, log.producers.first_unstable_offset(5)) == (5, None)


def test_i1_a_decided_transaction_holds_the_lso_until_its_marker_is_below_the_high_watermark():
    log = over(MemoryStore(), durability="fsync")
    transact(log, 7, 0, 0)
    settle(log)
    end(log, 7, 0, commit=True)
    assert (log.last_stable_offset, log.high_watermark, log.log_end_offset) == (0, 1, 2)
    settle(log)
    assert (log.last_stable_offset, log.high_watermark) == (2, 2)


def test_i1_the_lso_never_passes_the_high_watermark():
    log = over(MemoryStore(), durability="fsync")
    send(log, batch(3))
    transact(log, 7, 0, 0)
    assert (log.last_stable_offset, log.high_watermark, log.log_end_offset) == (0, 0, 4)


def test_readers_see_nothing_that_is_not_durable():
    log = over(MemoryStore(), durability="fsync")
    send(log, batch(3))
    assert read_batches(log, 0, 1000, UNCOMMITTED).size_bytes == 0
    assert read_batches(log, 0, 1000, UNCOMMITTED).error is ErrorCode.NONE
    settle(log)
    assert [h.record_count for h in headers(log)] == [3]


def test_i2_committed_readers_end_at_the_lso_and_get_the_aborted_transactions():
    log = over(MemoryStore())
    transact(log, 7, 0, 0)
    transact(log, 8, 0, 0)
    end(log, 7, 0, commit=False)
    end(log, 8, 0, commit=True)
    transact(log, 9, 0, 0)
    result = read_batches(log, 0, 10_000, COMMITTED)
    assert result.aborted == [(7, 0)]
    assert [h.base_offset for h in headers(log, COMMITTED)] == [0, 1, 2, 3]
    uncommitted = read_batches(log, 0, 10_000, UNCOMMITTED)
    assert uncommitted.aborted is None
    assert [h.base_offset for h in headers(log)] == [0, 1, 2, 3, 4]


def test_i2_the_list_holds_every_abort_that_overlaps_what_was_read_and_no_other():
    log = over(MemoryStore())
    for n in range(5):
        transact(log, 7, 0, n)
        end(log, 7, 0, commit=False)
    batch_bytes = len(batch(1, 7, 0, 0, transactional=True))
    assert read_batches(log, 4, batch_bytes, COMMITTED).aborted == [(7, 4)]
    aborted = read_batches(log, 5, 10_000, COMMITTED).aborted
    assert aborted == [(7, 4), (7, 6), (7, 8)], "the marker at 5 ends the one from 4"
    assert read_batches(log, 0, 10_000, COMMITTED).aborted == [(7, 0), (7, 2), (7, 4), (7, 6), (7, 8)]


@pytest.mark.parametrize("crash", [False, True])
def test_i3_an_abort_in_a_later_segment_is_found_from_an_earlier_one(crash):
    config = LogConfig(segment_bytes=250)
    store = MemoryStore()
    log = over(store, config)
    transact(log, 7, 0, 0)
    transact(log, 8, 0, 0)
    for n in range(1, 12):
        transact(log, 8, 0, n)
    end(log, 8, 0, commit=True)
    end(log, 7, 0, commit=False)
    if crash:
        log = over(crashed(store), config)
    assert len(log.segments) > 4
    assert read_batches(log, 0, 1, COMMITTED).aborted == [(7, 0)]
    assert read_batches(log, 5, 1, COMMITTED).aborted == [(7, 0)], "still open at 5"
    assert read_batches(log, log.log_end_offset - 1, 1000, COMMITTED).aborted == [(7, 0)]


def test_i3_an_entrys_lso_is_the_next_open_transaction_or_the_offset_after_the_marker():
    log = over(MemoryStore())
    transact(log, 7, 0, 0)
    transact(log, 8, 0, 0)
    end(log, 7, 0, commit=False)
    end(log, 8, 0, commit=False)
    entries = list(log.segments.active.aborted.all())
    assert [(e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset) for e in entries] == [
        (7, 0, 2, 1),
        (8, 1, 3, 4),
    ]


def test_the_aborted_list_is_ordered_by_first_offset():
    log = over(MemoryStore())
    for producer in (5, 6, 7):
        transact(log, producer, 0, 0)
    for producer in (7, 5, 6):
        end(log, producer, 0, commit=False)
    assert read_batches(log, 0, 10_000, COMMITTED).aborted == [(5, 0), (6, 1), (7, 2)]


def test_i7_readable_bytes_count_up_to_the_lso_for_committed_readers():
    log = over(MemoryStore())
    plain = len(batch(2))
    send(log, batch(2))
    transact(log, 7, 0, 0)
    assert readable_bytes(log, 0, COMMITTED) == plain
    assert readable_bytes(log, 0, UNCOMMITTED) == log.segments.size_bytes
    assert readable_bytes(log, 2, COMMITTED) == 0
    assert readable_bytes(log, 3, UNCOMMITTED) == 0


def test_i7_readable_bytes_across_segments():
    log = over(MemoryStore(), LogConfig(segment_bytes=200))
    sizes = [len(batch()) for _ in range(7) if send(log, batch()).error is ErrorCode.NONE]
    assert len(log.segments) > 2
    for offset in range(8):
        assert readable_bytes(log, offset, UNCOMMITTED) == sum(sizes[offset:])


def test_i6_a_hit_above_the_lso_is_hidden_from_committed_readers():
    log = over(MemoryStore())
    send(log, batch(timestamp_ms=NOW_MS - 100))
    send(log, batch(1, 7, 0, 0, transactional=True, timestamp_ms=NOW_MS))
    found = offset_for_timestamp(log, NOW_MS - 50, UNCOMMITTED)
    assert found is not None
    assert (found.offset, found.timestamp_ms, found.leader_epoch) == (1, NOW_MS, 0)
    assert offset_for_timestamp(log, NOW_MS - 50, COMMITTED) is None
    assert offset_for_timestamp(log, NOW_MS - 100, COMMITTED).offset == 0


def test_watchers_are_woken_when_the_high_watermark_moves_and_not_otherwise():
    log = over(MemoryStore(), durability="fsync")
    bell = Bell()
    log.watchers[bell] = None
    send(log, batch())
    send(log, batch(1, 7, 0, 5))
    send(log, batch(1, 7, 0, 9))
    assert bell.rings == 0
    settle(log)
    assert bell.rings == 1
    settle(log)
    assert bell.rings == 1
    log.disown("deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert bell.rings == 2
    del log.watchers[bell]
    log.wake()
    assert bell.rings == 2


def test_offsets_outside_the_log_are_out_of_range():
    log = over(MemoryStore())
    send(log, batch(4))
    delete_records(log, 2)
    for offset in (-1, 1, 5):
        assert read_batches(log, offset, 1000, UNCOMMITTED).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert read_batches(log, 4, 1000, UNCOMMITTED).error is ErrorCode.NONE


def test_an_offset_within_a_batch_gets_the_whole_batch():
    """L1: the index knows batches, not records."""
    log = over(MemoryStore())
    send(log, batch(10))
    within, whole = (read_batches(log, offset, 1000, UNCOMMITTED) for offset in (7, 0))
    assert joined(within.parts) == joined(whole.parts)


@pytest.mark.parametrize("config", [LogConfig(), LogConfig(segment_bytes=700, index_interval_bytes=150)])
def test_reads_never_exceed_max_bytes_but_for_one_batch(config):
    log = over(MemoryStore(), config)
    for n in range(40):
        send(log, batch(1 + n % 3, value=b"v" * (n * 7 % 90)))
    largest = max(h.size_bytes for h in headers(log))
    for max_bytes in range(0, 3 * largest, 17):
        for offset in range(log.log_end_offset):
            result = read_batches(log, offset, max_bytes, UNCOMMITTED)
            first = headers_in(result)[0]
            assert first.base_offset <= offset < first.next_offset
            assert result.size_bytes <= max_bytes or len(headers_in(result)) == 1
            assert read_batches(log, offset, max_bytes, UNCOMMITTED, at_least_one=False).size_bytes <= max_bytes
    assert len(headers(log, max_bytes=1)) == 40


def headers_in(result):
    from fencepost.protocol.batch_header import iter_headers

    return [header for _, header in iter_headers(joined(result.parts))]
