"""Deleting from the front: by time, by size, by DeleteRecords (row L3, and row 20 of section 0 as the sources ask)."""

import pytest

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.memory import MemoryStore
from fencepost.broker.log.retention import SegmentFacts, deletable
from fencepost.protocol.errors import ErrorCode
from tests.unit.log.kit import (
    COMMITTED,
    NOW_MS,
    TP,
    UNCOMMITTED,
    batch,
    crashed,
    directory_over,
    end,
    headers,
    over,
    send,
    settle,
    transact,
)

DAY_MS = 24 * 3600 * 1000


def row_of(*timestamps_ms, size_bytes=100):
    return [SegmentFacts(10 * (n + 1), size_bytes, timestamp_ms) for n, timestamp_ms in enumerate(timestamps_ms)]


def test_by_time_the_oldest_go_until_one_is_young_enough():
    segments = row_of(1000, 2000, 3000, 4000)
    config = LogConfig(retention_ms=1000)
    assert deletable(segments, config, 3500, 0, 40) == 2
    assert deletable(segments, config, 3000, 0, 40) == 1
    assert deletable(segments, config, 99_999, 0, 40) == 4
    assert deletable(row_of(1000, 9000, 1000), config, 5000, 0, 30) == 1, "only a prefix may go"


def test_by_size_no_more_than_the_surplus():
    segments = row_of(1, 1, 1, 1)
    for retention_bytes, count in ((400, 0), (399, 0), (301, 0), (300, 1), (250, 1), (200, 2), (0, 4)):
        assert deletable(segments, LogConfig(retention_ms=-1, retention_bytes=retention_bytes), 5, 0, 40) == count


def test_compact_only_topics_lose_nothing_by_time_or_size():
    config = LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=1, retention_bytes=0)
    assert deletable(row_of(1, 1), config, 99_999, 0, 20) == 0
    assert deletable(row_of(1, 1), config, 99_999, 10, 20) == 1, "but DeleteRecords holds for them, too"


def test_nothing_at_or_above_the_bound_goes():
    config = LogConfig(retention_ms=1)
    for bound, count in ((0, 0), (9, 0), (10, 1), (19, 1), (20, 2)):
        assert deletable(row_of(1, 1, 1), config, 99_999, 0, bound) == count


def test_records_without_timestamps_do_not_expire():
    assert deletable(row_of(-1, -1), LogConfig(retention_ms=1), NOW_MS, 0, 20) == 0


@pytest.mark.parametrize("commit", [True, False])
def test_s3_s4_the_segment_in_which_an_open_transaction_starts_stays(commit):
    config = LogConfig(segment_bytes=200, retention_ms=1000)
    log = over(MemoryStore(), config)
    for _ in range(4):
        send(log, batch())
    transact(log, 7, 0, 0)
    for n in range(6):
        send(log, batch(1, 8, 0, n))
    log.housekeep(NOW_MS + 2000)
    assert log.log_start_offset == 4, "up to the segment with offset 4, although all have expired"
    end(log, 7, 0, commit=commit)
    log.housekeep(NOW_MS + 2000)
    assert log.log_start_offset == log.log_end_offset == 12


def test_expired_data_goes_from_an_idle_active_segment_as_well_and_offsets_go_on():
    store = MemoryStore()
    log = over(store, LogConfig(retention_ms=1000))
    send(log, batch(3))
    log.housekeep(NOW_MS + 5000)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (3, 3, 0)
    again = over(crashed(store), LogConfig(retention_ms=1000))
    assert (again.log_start_offset, again.log_end_offset) == (3, 3)
    assert send(again, batch()).base_offset == 3


def test_nothing_that_is_not_durable_is_deleted():
    log = over(MemoryStore(), LogConfig(segment_bytes=200, retention_ms=1), "fsync")
    for _ in range(5):
        send(log, batch())
    log.housekeep(NOW_MS + 5000)
    assert log.log_start_offset == 0
    settle(log)
    log.housekeep(NOW_MS + 5000)
    assert log.log_start_offset == 5


def test_delete_records_moves_the_start_at_once_and_for_good():
    store = MemoryStore()
    log = over(store)
    for _ in range(10):
        send(log, batch())
    assert log.delete_records(4) == (ErrorCode.NONE, 4)
    assert log.log_start_offset == 4
    assert log.read(3, 1000, UNCOMMITTED).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records(2) == (ErrorCode.NONE, 4), "it never moves back"
    assert over(crashed(store)).log_start_offset == 4, "kept through kill -9"


def test_delete_records_up_to_the_high_watermark_and_not_beyond():
    log = over(MemoryStore(), durability="fsync")
    send(log, batch(5))
    settle(log)
    send(log, batch(5))
    assert log.delete_records(6) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert log.delete_records(-2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert log.delete_records(-1) == (ErrorCode.NONE, 5)


def test_delete_records_frees_whole_segments_and_their_files():
    store = MemoryStore()
    config = LogConfig(segment_bytes=200)
    log = over(store, config)
    for _ in range(9):
        send(log, batch())
    before = len([name for name in store.child(str(TP)).sizes() if name.endswith(".log")])
    log.delete_records(7)
    after = [name for name in store.child(str(TP)).sizes() if name.endswith(".log")]
    assert len(after) < before
    assert [header.base_offset for header in headers(over(crashed(store), config))] == [7, 8]


def test_the_lso_is_never_below_the_log_start():
    log = over(MemoryStore())
    transact(log, 7, 0, 0, count=4)
    assert log.delete_records(2) == (ErrorCode.NONE, 2)
    assert log.last_stable_offset == log.first_unstable_offset == 2
    assert log.read(2, 1000, COMMITTED).size_bytes == 0
    end(log, 7, 0, commit=True)
    assert log.last_stable_offset == 5


def test_old_snapshots_go_with_their_segments_but_never_the_newest():
    store = MemoryStore()
    log = over(store, LogConfig(segment_bytes=200))
    for n in range(9):
        send(log, batch(1, 7, 0, n))
    log.delete_records(-1)
    names = [name for name in store.child(str(TP)).sizes() if name.endswith(".snapshot")]
    assert names == ["00000000000000000009.snapshot"]


def test_a_directory_remembers_log_starts_of_partitions_that_were_not_opened():
    store = MemoryStore()
    log = over(store)
    send(log, batch(5))
    log.delete_records(3)
    idle = directory_over(crashed(store))
    idle.write_checkpoints()
    idle_store = idle._store
    assert directory_over(idle_store).get(TP).log_start_offset == 3
