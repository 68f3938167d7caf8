"""Rolling, sparse indexes and finding by time (rows L1, I6, L10, KIP-734)."""

import gc
import os
import random
import resource

import pytest

from fencepost.broker.fetch.reads import leader_epoch_error
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.reading import epoch_end_offset, max_timestamp_offset, offset_for_timestamp, read_batches
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import FileRegion
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from tests.kit.trimming import delete_records
from tests.unit.log.kit import (
    COMMITTED,
    NOW_MS,
    TOPIC_ID,
    TP,
    UNCOMMITTED,
    batch,
    crashed,
    headers,
    joined,
    log_file,
    over,
    send,
    settle,
)


def test_l1_rolled_by_size():
    log = over(MemoryStore(), LogConfig(segment_bytes=3 * len(batch())))
    for _ in range(10):
        send(log, batch())
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    assert all(segment.size_bytes <= log.config.segment_bytes for segment in log.segments)


def test_l1_rolled_by_time_of_the_records():
    log = over(MemoryStore(), LogConfig(segment_ms=1000))
    for age_ms in (5000, 4500, 4000, 3999, 0):
        send(log, batch(timestamp_ms=NOW_MS - age_ms))
    assert [segment.base_offset for segment in log.segments] == [0, 3, 4]


def test_l1_rolled_when_the_index_is_full():
    log = over(MemoryStore(), LogConfig(segment_index_bytes=24, index_interval_bytes=0))
    for _ in range(9):
        send(log, batch())
    assert [segment.base_offset for segment in log.segments] == [0, 4, 8]


def test_l1_rolled_before_a_relative_offset_passes_an_int32():
    log = over(MemoryStore())
    send(log, batch())
    log.segments.skip_to(2**31 - 1)
    log.advance_high_watermark(2**31 - 1)
    assert send(log, batch(2)).base_offset == 2**31 - 1
    assert log.segments.active.base_offset == 2**31 - 1


def test_an_empty_segment_never_rolls():
    log = over(MemoryStore(), LogConfig(segment_bytes=100, segment_ms=0, segment_index_bytes=0))
    send(log, batch())
    assert len(log.segments) == 1


@pytest.mark.parametrize("reopened", [False, True])
def test_offset_for_timestamp_finds_the_first_record_not_earlier(reopened):
    generator = random.Random(4)
    config = LogConfig(segment_bytes=900, index_interval_bytes=120)
    store = MemoryStore()
    log = over(store, config)
    times = []
    for _ in range(60):
        group = [NOW_MS + generator.randrange(1000) for _ in range(generator.randrange(1, 4))]
        times += group
        codec = generator.choice([Compression.NONE, Compression.GZIP])
        assert not send(log, build_batch([(t, b"k", b"v", ()) for t in group], compression=codec)).error
    if reopened:
        log = over(crashed(store), config)
    delete_records(log, 20)
    for wanted in range(NOW_MS - 1, NOW_MS + 1002, 7):
        expected = next((n for n in range(20, len(times)) if times[n] >= wanted), None)
        found = offset_for_timestamp(log, wanted, UNCOMMITTED)
        assert (None if found is None else found.offset) == expected
    latest = max(times[20:])
    found = max_timestamp_offset(log)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (latest, times.index(latest, 20))


def test_kip_734_the_largest_timestamp_below_the_high_watermark():
    log = over(MemoryStore(), LogConfig(index_interval_bytes=150), "fsync")
    for n in range(20):
        send(log, batch(timestamp_ms=NOW_MS + n))
    settle(log)
    send(log, batch(timestamp_ms=NOW_MS + 500))
    found = max_timestamp_offset(log)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (19, NOW_MS + 19)


def test_an_empty_log_has_no_timestamps():
    log = over(MemoryStore())
    assert max_timestamp_offset(log) is None
    assert offset_for_timestamp(log, 0, COMMITTED) is None


def test_l10_epochs_and_where_they_end():
    store = MemoryStore()
    log = over(store)
    send(log, batch(3))
    log.leader_epoch = 4
    send(log, batch(2))
    log.leader_epoch = 7
    send(log, batch(1))
    for again in (log, over(crashed(store))):
        assert again.leader_epoch == 7
        answers = {epoch: epoch_end_offset(again, epoch) for epoch in range(-1, 9)}
        assert answers == {
            -1: (-1, -1),
            0: (0, 3),
            1: (0, 3),
            2: (0, 3),
            3: (0, 3),
            4: (4, 5),
            5: (4, 5),
            6: (4, 5),
            7: (7, 6),
            8: (-1, -1),
        }
        assert [again.epochs.epoch_of(offset) for offset in range(6)] == [0, 0, 0, 4, 4, 7]


def test_l10_an_epoch_that_is_over_is_fenced_and_one_to_come_unknown():
    log = over(MemoryStore())
    log.leader_epoch = 4
    assert leader_epoch_error(3, log) is ErrorCode.FENCED_LEADER_EPOCH
    assert leader_epoch_error(5, log) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert leader_epoch_error(4, log) is leader_epoch_error(-1, log) is ErrorCode.NONE


def test_large_pieces_are_file_regions_that_outlive_their_segment(tmp_path):
    directory = LogManager.open(tmp_path / "data", durability="os")
    log = directory.create(TP, TOPIC_ID, LogConfig(segment_bytes=300_000))
    for _ in range(4):
        send(log, batch(value=b"x" * 100_000))
    result = read_batches(log, 0, 1 << 20, UNCOMMITTED)
    assert all(isinstance(part, FileRegion) for part in result.parts)
    assert sum(len(part) for part in result.parts) == result.size_bytes == log.segments.size_bytes
    before = joined(result.parts)
    delete_records(log, -1)
    directory.delete(TP)
    assert joined(result.parts) == before, "the descriptors live as long as the regions"
    small = directory.create(TP, TOPIC_ID, LogConfig())
    send(small, batch())
    assert isinstance(read_batches(small, 0, 1 << 20, UNCOMMITTED).parts[0], bytes)
    directory.close()


def test_descriptors_are_bounded_and_files_are_opened_again_when_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (40, 40))
    gc.collect()  # what tests before this one left open must not be closed in the middle of it
    before = len(os.listdir("/proc/self/fd"))
    directory = LogManager.open(tmp_path / "data", durability="os")
    logs = [directory.create(TP._replace(partition=n), TOPIC_ID, LogConfig(segment_bytes=200)) for n in range(12)]
    for _ in range(5):
        for log in logs:
            send(log, batch())
    for log in logs:
        assert len(headers(log)) == 5
    assert len(os.listdir("/proc/self/fd")) - before <= 22
    directory.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_l1_a_lookup_reads_no_more_than_an_index_interval_and_a_page():
    store = MemoryStore()
    log = over(store, LogConfig(index_interval_bytes=1000))
    for _ in range(2000):
        send(log, batch())
    file = log_file(store)
    read, asked = file.read, []

    def counting_read(position, length):
        asked.append(position)
        return read(position, length)

    file.read = counting_read
    for offset in (3, 700, 1400):
        asked.clear()
        position = log.segments.active.position_of(offset)
        assert position == offset * len(batch())
        assert len(asked) == 1
        assert 0 <= position - asked[0] <= 1000 + 2 * len(batch())
