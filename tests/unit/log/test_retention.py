"""Deleting from the front: by time, by size, by DeleteRecords (row L3, and row 20 of section 0 as the sources ask)."""

import os
from dataclasses import replace

import pytest

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.reading import read_batches
from fencepost.broker.log.retention import SegmentFacts, deletable
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.protocol.errors import ErrorCode
from tests.kit.trimming import delete_records, housekeep
from tests.unit.log.kit import (
    COMMITTED,
    NOW_MS,
    TOPIC_ID,
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


def test_l3_by_time_the_oldest_go_until_one_is_young_enough():
    segments = row_of(1000, 2000, 3000, 4000)
    config = LogConfig(retention_ms=1000)
    assert deletable(segments, config, 3500, 0, 40) == 2
    assert deletable(segments, config, 3000, 0, 40) == 1
    assert deletable(segments, config, 99_999, 0, 40) == 4
    assert deletable(row_of(1000, 9000, 1000), config, 5000, 0, 30) == 1, "only a prefix may go"


def test_l3_by_size_no_more_than_the_surplus():
    segments = row_of(1, 1, 1, 1)
    for retention_bytes, count in ((400, 0), (399, 0), (301, 0), (300, 1), (250, 1), (200, 2), (0, 4)):
        assert deletable(segments, LogConfig(retention_ms=-1, retention_bytes=retention_bytes), 5, 0, 40) == count


def test_compact_only_topics_lose_nothing_by_time_or_size():
    config = LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=1, retention_bytes=0)
    assert deletable(row_of(1, 1), config, 99_999, 0, 20) == 0
    assert deletable(row_of(1, 1), config, 99_999, 10, 20) == 1, "but DeleteRecords holds for them, too"


def test_l3_nothing_at_or_above_the_bound_goes():
    config = LogConfig(retention_ms=1)
    for bound, count in ((0, 0), (9, 0), (10, 1), (19, 1), (20, 2)):
        assert deletable(row_of(1, 1, 1), config, 99_999, 0, bound) == count


def test_l3_what_nobody_knows_the_age_of_does_not_expire():
    assert deletable(row_of(-1, -1), LogConfig(retention_ms=1), NOW_MS, 0, 20) == 0


def test_l3_records_without_timestamps_expire_by_the_age_of_their_file(tmp_path):
    """As in Kafka, which falls back to the time of the file's last modification."""
    config = LogConfig(segment_bytes=100, retention_ms=DAY_MS)
    log = LogManager.open(tmp_path, durability="os").create(TP, TOPIC_ID, config)
    for _ in range(3):
        send(log, batch(timestamp_ms=-1))
    old = tmp_path / str(TP) / "00000000000000000000.log"
    written_ms = old.stat().st_mtime_ns // 1_000_000
    os.utime(old, ns=((written_ms - DAY_MS) * 1_000_000,) * 2)
    housekeep(log, written_ms + DAY_MS // 2)
    assert (log.log_start_offset, log.log_end_offset) == (1, 3)
    housekeep(log, written_ms + 2 * DAY_MS)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_l3_an_empty_segment_holds_up_nothing_but_is_not_deleted_as_the_last():
    """What compaction emptied may stand in the midst; the last segment says where offsets go on."""
    emptied = [SegmentFacts(10, 0, 1), *row_of(1, 1)[1:], SegmentFacts(20, 0, 1)]
    assert deletable(emptied, LogConfig(retention_ms=1), 99_999, 0, 20) == 2
    assert deletable([SegmentFacts(0, 0, 1)], LogConfig(retention_ms=1), 99_999, 0, 0) == 0


def test_l3_a_timestamp_in_the_future_keeps_its_segment_until_then():
    config = LogConfig(retention_ms=DAY_MS, message_timestamp_after_max_ms=10 * DAY_MS, segment_bytes=100)
    log = over(MemoryStore(), config)
    send(log, batch(timestamp_ms=NOW_MS + 5 * DAY_MS))
    send(log, batch(timestamp_ms=NOW_MS))
    for days, start in ((3, 0), (6, 0), (7, 2)):
        housekeep(log, NOW_MS + days * DAY_MS)
        assert log.log_start_offset == start


def test_l3_l7_log_append_time_expires_by_the_brokers_clock():
    config = LogConfig(retention_ms=DAY_MS, message_timestamp_type="LogAppendTime")
    log = over(MemoryStore(), config)
    send(log, batch(timestamp_ms=5))
    housekeep(log, NOW_MS + DAY_MS)
    assert log.log_start_offset == 0
    housekeep(log, NOW_MS + DAY_MS + 1)
    assert log.log_start_offset == 1


def test_l3_retention_follows_the_setting_of_the_moment():
    log = over(MemoryStore(), LogConfig(retention_ms=-1))
    send(log, batch())
    housekeep(log, NOW_MS + 5 * DAY_MS)
    assert log.log_start_offset == 0
    log.config = replace(log.config, retention_ms=DAY_MS)
    housekeep(log, NOW_MS + 5 * DAY_MS)
    assert log.log_start_offset == 1


@pytest.mark.parametrize("commit", [True, False])
def test_s3_s4_the_segment_in_which_an_open_transaction_starts_stays(commit):
    config = LogConfig(segment_bytes=200, retention_ms=1000)
    log = over(MemoryStore(), config)
    for _ in range(4):
        send(log, batch())
    transact(log, 7, 0, 0)
    for n in range(6):
        send(log, batch(1, 8, 0, n))
    housekeep(log, NOW_MS + 2000)
    assert log.log_start_offset == 4, "up to the segment with offset 4, although all have expired"
    end(log, 7, 0, commit=commit)
    housekeep(log, NOW_MS + 2000)
    assert log.log_start_offset == log.log_end_offset == 12


@pytest.mark.parametrize("commit", [True, False])
def test_row_20_kafkas_way_lets_the_start_of_an_open_transaction_expire(commit):
    """With log.retention.spares.open.transactions off the LSO stands at the log's start until the transaction ends."""
    config = LogConfig(segment_bytes=200, retention_ms=1000, retention_spares_open_transactions=False)
    store = MemoryStore()
    log = over(store, config)
    transact(log, 7, 0, 0)
    for n in range(6):
        send(log, batch(1, 8, 0, n))
    housekeep(log, NOW_MS + 2000)
    for again in (log, over(crashed(store), config)):
        assert again.log_start_offset == again.log_end_offset == again.last_stable_offset == 7
        assert [txn.first_offset for txn in again.producers.open_transactions()] == [0]
        transact(again, 7, 0, 1)
        assert (again.last_stable_offset, again.high_watermark) == (7, 8)
        end(again, 7, 0, commit=commit)
        assert again.last_stable_offset == again.high_watermark == 9
        assert read_batches(again, 7, 1 << 20, COMMITTED).aborted == ([] if commit else [(7, 0)])


def test_expired_data_goes_from_an_idle_active_segment_as_well_and_offsets_go_on():
    store = MemoryStore()
    log = over(store, LogConfig(retention_ms=1000))
    send(log, batch(3))
    housekeep(log, NOW_MS + 5000)
    assert (log.log_start_offset, log.log_end_offset, log.segments.size_bytes) == (3, 3, 0)
    again = over(crashed(store), LogConfig(retention_ms=1000))
    assert (again.log_start_offset, again.log_end_offset) == (3, 3)
    assert send(again, batch()).base_offset == 3


def test_l3_nothing_that_is_not_durable_is_deleted():
    log = over(MemoryStore(), LogConfig(segment_bytes=200, retention_ms=1), "fsync")
    for _ in range(5):
        send(log, batch())
    housekeep(log, NOW_MS + 5000)
    assert log.log_start_offset == 0
    settle(log)
    housekeep(log, NOW_MS + 5000)
    assert log.log_start_offset == 5


def test_l3_delete_records_moves_the_start_at_once_and_for_good():
    store = MemoryStore()
    log = over(store)
    for _ in range(10):
        send(log, batch())
    assert delete_records(log, 4) == (ErrorCode.NONE, 4)
    assert log.log_start_offset == 4
    assert read_batches(log, 3, 1000, UNCOMMITTED).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(log, 2) == (ErrorCode.NONE, 4), "it never moves back"
    assert over(crashed(store)).log_start_offset == 4, "kept through kill -9"


def test_l3_delete_records_up_to_the_high_watermark_and_not_beyond():
    log = over(MemoryStore(), durability="fsync")
    send(log, batch(5))
    settle(log)
    send(log, batch(5))
    assert delete_records(log, 6) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(log, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(log, -1) == (ErrorCode.NONE, 5)


def test_l3_delete_records_frees_whole_segments_and_their_files():
    store = MemoryStore()
    config = LogConfig(segment_bytes=200)
    log = over(store, config)
    for _ in range(9):
        send(log, batch())
    before = len([name for name in store.child(str(TP)).sizes() if name.endswith(".log")])
    delete_records(log, 7)
    after = [name for name in store.child(str(TP)).sizes() if name.endswith(".log")]
    assert len(after) < before
    assert [header.base_offset for header in headers(over(crashed(store), config))] == [7, 8]


def test_i1_the_lso_is_never_below_the_log_start():
    log = over(MemoryStore())
    transact(log, 7, 0, 0, count=4)
    assert delete_records(log, 2) == (ErrorCode.NONE, 2)
    assert log.last_stable_offset == 2
    assert read_batches(log, 2, 1000, COMMITTED).size_bytes == 0
    end(log, 7, 0, commit=True)
    assert log.last_stable_offset == 5


def test_old_snapshots_go_with_their_segments_but_never_the_newest():
    store = MemoryStore()
    log = over(store, LogConfig(segment_bytes=200))
    for n in range(9):
        send(log, batch(1, 7, 0, n))
    delete_records(log, -1)
    names = [name for name in store.child(str(TP)).sizes() if name.endswith(".snapshot")]
    assert names == ["00000000000000000009.snapshot"]


def test_a_directory_remembers_log_starts_of_partitions_that_were_not_opened():
    store = MemoryStore()
    log = over(store)
    send(log, batch(5))
    delete_records(log, 3)
    idle = directory_over(crashed(store))
    idle.write_checkpoints()
    idle_store = idle.store
    assert directory_over(idle_store).get(TP).log_start_offset == 3
