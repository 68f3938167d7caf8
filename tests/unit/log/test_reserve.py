"""Room reserved behind the last batch: never read, never kept, and after a crash never taken for data (row L2)."""

import contextlib
import errno
import logging
from pathlib import Path

import pytest

from fencepost.broker.log import partition
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.reading import read_batches
from fencepost.broker.log.recovery.opening import recover
from fencepost.broker.log.recovery.scanning import need_no_batch_after_damage
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.reserve import drop_reserve, end_of_batches
from fencepost.broker.log.storage.segment import Segment
from fencepost.broker.log.storage.store import END_MARK, CorruptLogFile, FlushFailed
from fencepost.protocol.batch_header import read_header
from fencepost.protocol.record_batch import build_batch
from tests.kit.disk_faults import Fault
from tests.kit.disk_nodes import nothing
from tests.kit.sim_disk import SimDisk
from tests.unit.log.kit import (
    COMMITTED,
    DEFAULTS,
    NOW_MS,
    TOPIC_ID,
    TP,
    batch,
    crashed,
    headers,
    headers_from_disk,
    log_file,
    over,
    send,
    settle,
    settle_small,
)

ROOM = 4096


def segment_of(batches, after=b"", index_interval_bytes=1 << 30):
    """A segment of these batches, opened again with bytes behind the last of them; and the size of the batches."""
    store = MemoryStore()
    segment = Segment(store, 0)
    for data in batches:
        header = read_header(data)
        data[:8] = segment.next_offset.to_bytes(8, "big")
        segment.append(data, header, index_interval_bytes)
    segment.flush_indexes()
    size = segment.size_bytes
    segment.file.write(size, after)
    return Segment(store, 0), size


def zeros_at_the_end(count=200):
    return build_batch([(NOW_MS, None, bytes(count), ())])


def test_room_behind_the_last_batch_is_cut_off():
    segment, size = segment_of([batch(3), batch(2)], bytes(ROOM))
    assert drop_reserve(segment) == ROOM
    assert segment.size_bytes == size
    assert drop_reserve(segment) == 0


def test_zeros_that_end_a_batch_belong_to_it():
    """Each record ends in a zero, its count of headers; values may be nothing else."""
    for data in (batch(1), zeros_at_the_end(), zeros_at_the_end(200_000)):
        segment, size = segment_of([batch(2), data])
        assert drop_reserve(segment) == 0
        segment, size = segment_of([batch(2), data], bytes(ROOM))
        assert drop_reserve(segment) == ROOM
        assert segment.size_bytes == size


def test_a_file_of_nothing_but_room_becomes_empty():
    segment, _ = segment_of([], bytes(ROOM))
    assert drop_reserve(segment) == ROOM
    assert segment.size_bytes == 0


def test_the_mark_before_the_room_goes_with_it():
    segment, size = segment_of([batch(3), zeros_at_the_end()], END_MARK + bytes(ROOM))
    assert drop_reserve(segment) == ROOM + len(END_MARK)
    assert segment.size_bytes == size


@pytest.mark.parametrize(
    "rest",
    [b"\1" + bytes(ROOM), bytes(70) + b"\1" + bytes(ROOM), END_MARK + b"\1" + bytes(ROOM), 2 * END_MARK + bytes(ROOM)],
)
def test_what_is_not_only_zeros_is_no_room(rest):
    segment, size = segment_of([batch(3)], rest)
    assert end_of_batches(segment) is None
    assert drop_reserve(segment) == 0
    assert segment.size_bytes == size + len(rest)


def test_a_batch_of_which_the_end_was_never_written_is_left_to_the_scan():
    """Its checksum tells that it is torn; only what lies behind it is room."""
    segment, size = segment_of([batch(3)], bytes(batch(1))[:70] + bytes(ROOM))
    assert end_of_batches(segment) == size + len(batch(1))


def test_the_walk_begins_at_a_batch_that_the_index_names(monkeypatch):
    many = [batch(1, value=bytes([n]) * 300) for n in range(100)]
    segment, size = segment_of(many, bytes(ROOM), index_interval_bytes=1000)
    begun = []
    walk = segment.walk
    monkeypatch.setattr(segment, "walk", lambda position: begun.append(position) or walk(position))
    assert end_of_batches(segment) == size
    assert begun[0] > size - 3000


def test_an_index_that_lies_costs_only_a_longer_walk():
    many = [batch(1, value=bytes([n]) * 300) for n in range(100)]
    segment, size = segment_of(many, bytes(ROOM), index_interval_bytes=1000)
    entries = list(segment.offsets.entries())
    segment.offsets.truncate(0)
    for relative_offset, position in entries:
        segment.offsets.add(relative_offset, position + 7)
    assert end_of_batches(segment) == size


def test_after_a_crash_the_log_goes_on_behind_its_last_batch(caplog):
    """The room is no damage: it is dropped without a warning, and what is appended then follows the last batch."""
    store = MemoryStore()
    log = over(store, durability="fsync")
    for sequence in range(5):
        send(log, batch(2, 7, 0, 2 * sequence))
        settle_small(log)
    before = headers(log)
    files = crashed(store)
    log_file(files).data += bytes(ROOM)
    with caplog.at_level(logging.INFO):
        again = over(files, durability="fsync")
    assert headers(again) == before
    assert again.log_end_offset == 10
    assert [record.levelname for record in caplog.records if "reserved" in record.getMessage()] == ["INFO"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert send(again, batch(2, 7, 0, 10)).base_offset == 10
    settle(again)
    assert len(log_file(files).data) == sum(header.size_bytes for header in headers(again))


def test_a_segment_closed_just_before_the_crash_may_end_in_room_too():
    """The full disk that kept its index entries in memory kept its file from being trimmed; the next one has data."""
    store = MemoryStore()
    log = over(store, LogConfig(segment_bytes=300), "fsync")
    for _ in range(6):
        send(log, batch(1, value=bytes(100)))
    settle(log)
    before = headers(log)
    assert len(log.segments) > 2
    files = crashed(store)
    log_file(files, number=-2).data += bytes(ROOM)
    log_file(files).data += bytes(ROOM)
    assert len(before) == 6
    assert headers(over(files, LogConfig(segment_bytes=300), "fsync")) == before


def test_a_segment_that_was_all_durable_when_it_was_closed_may_end_in_room_too():
    """Row L2: the power went behind a roll with nothing to flush. Names and snapshot got there, the cut did not."""

    def names_alone(change, is_last, random):
        return change if isinstance(change, dict) else None

    disk = SimDisk()
    files = FileStore(Path("/data"), disk=disk)
    files.make()
    log = LogManager.over(files, "fsync").create(TP, TOPIC_ID, DEFAULTS)
    send(log, batch(2))
    settle_small(log)
    before, point = headers(log), log.recovery_point
    assert point == log.log_end_offset
    log.roll(NOW_MS)
    for target in log.snapshots.sync_targets(point):
        target.sync()
    after = FileStore(Path("/data"), disk=disk.power_cut(names_alone)).child(str(TP))
    assert len(after.sizes()) > 1
    assert max(after.sizes().values()) > ROOM, "the room is there again"
    recovered = recover(after, DEFAULTS, 0, point)
    assert recovered.segments.end_offset == point
    assert recovered.segments.size_bytes == sum(header.size_bytes for header in before)


def test_room_in_a_closed_file_is_no_damage_before_whole_batches():
    """For the metadata log a bad batch before good ones is damage; a cut that the power took back is none."""
    store = MemoryStore()
    for base in (0, 1):
        store.open(f"{base:020d}.log").write(0, bytes(batch(1)) + (b"" if base else END_MARK + bytes(ROOM)))
    need_no_batch_after_damage(store)
    store.files[f"{0:020d}.log"].data[70] ^= 1
    with pytest.raises(CorruptLogFile, match="stands before whole ones"):
        need_no_batch_after_damage(store)


def on_disk(path: Path):
    directory = LogManager.over(FileStore(path), "fsync")
    return directory, directory.create(TP, TOPIC_ID, DEFAULTS)


def only_file(path: Path) -> Path:
    return path / str(TP) / "00000000000000000000.log"


def test_small_flushes_make_room_and_a_clean_end_gives_it_back(tmp_path):
    directory, log = on_disk(tmp_path)
    for _ in range(3):
        send(log, batch(2))
        settle_small(log)
        assert only_file(tmp_path).stat().st_size >= log.segments.size_bytes + partition.RESERVE_BYTES // 8
    used = log.segments.size_bytes
    directory.close()
    assert only_file(tmp_path).stat().st_size == used


def test_the_mark_follows_the_last_batch(tmp_path):
    """Written with each batch, in one call, and overwritten by the next; without room for it there is none."""
    _, log = on_disk(tmp_path)
    send(log, batch(2))
    settle_small(log)
    for _ in range(4):
        used = log.segments.size_bytes
        data = only_file(tmp_path).read_bytes()
        assert data[used:].rstrip(b"\0") == END_MARK.rstrip(b"\0")
        assert data[:used].count(END_MARK) == 0
        send(log, batch(3))
    room = only_file(tmp_path).stat().st_size - log.segments.size_bytes
    send(log, batch(1, value=bytes(room - 90)))
    assert only_file(tmp_path).stat().st_size - log.segments.size_bytes < len(END_MARK)
    assert len(headers_from_disk(tmp_path)) == 6


def test_room_goes_when_the_segment_is_closed(tmp_path):
    _, log = on_disk(tmp_path)
    send(log, batch(2))
    settle_small(log)
    used = log.segments.size_bytes
    log.segments.roll(NOW_MS)
    assert only_file(tmp_path).stat().st_size == used


def test_large_flushes_and_those_of_the_page_cache_make_no_room(tmp_path):
    _, log = on_disk(tmp_path)
    send(log, batch(1, value=bytes(partition.RESERVE_BYTES + 1)))
    settle_small(log)
    assert only_file(tmp_path).stat().st_size == log.segments.size_bytes
    send(log, batch(2))
    end_offset, sync_targets = log.begin_sync()
    for target in sync_targets:
        target.sync()
    log.finish_sync(end_offset)
    assert only_file(tmp_path).stat().st_size == log.segments.size_bytes


def test_readers_see_no_room(tmp_path):
    _, log = on_disk(tmp_path)
    data = batch(2)
    send(log, data)
    settle_small(log)
    read = read_batches(log, 0, 1 << 20, COMMITTED)
    assert read.size_bytes == len(data)


def test_a_cut_that_a_failed_flush_may_have_lost_is_made_again():
    """After a failed flush only what is written anew is surely flushed, and a file's size is of that kind as well."""
    disk = SimDisk()

    def opened():
        files = FileStore(Path("/data"), disk=disk)
        files.make()
        return LogManager.over(files, "fsync").create(TP, TOPIC_ID, DEFAULTS)

    log = opened()
    send(log, batch(2))
    settle_small(log)
    disk = disk.kill()
    disk.faults.append(Fault(0, code=errno.EIO, kinds=("fdatasync",)))
    with contextlib.suppress(FlushFailed):
        opened()  # cuts the room off, and fails to flush that
    assert disk.faults[0].hits
    disk = disk.kill()
    disk.faults.clear()
    log = opened()
    settle(log)
    left = disk.power_cut(nothing, 0).file(f"/data/{TP}/00000000000000000000.log")
    assert len(left.data) == log.segments.size_bytes
