"""Large batches are written by a thread before they count (decision 46): nobody else may notice, nor any crash."""

import errno
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from fencepost.broker.handlers.produce_reply import Write
from fencepost.broker.log.durability.large_writes import LargeWrites, stage
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.storage.disk import SystemDisk
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.staged import PIECE_BYTES
from fencepost.broker.log.storage.store import END_MARK
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.unit.log.kit import (
    DEFAULTS,
    NOW_MS,
    TOPIC_ID,
    TP,
    batch,
    end,
    headers,
    headers_from_disk,
    send,
    settle,
    settle_small,
    transact,
)

LARGE = bytes(3 * PIECE_BYTES)


class SpiedDisk(SystemDisk):
    """Notes which thread writes how much; the first large write of a thread other than the loop's may be held up."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = threading.get_ident()
        self.by_the_loop: list[int] = []
        self.by_threads: list[int] = []
        self.full = False
        self.held = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self._write = self.pwrite
        self.pwrite = self._spied

    def _spied(self, fd, data, offset):
        if threading.get_ident() == self.loop:
            self.by_the_loop.append(len(data))
        else:
            self.by_threads.append(len(data))
            self.held.set()
            assert self.go_on.wait(60)
        if self.full and len(data) > 1000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._write(fd, data, offset)


def opened(path: Path, disk: SystemDisk | None = None, tp: TopicPartition = TP, config=DEFAULTS, durability="os"):
    """A log on disk that holds one small batch already."""
    store = FileStore(path, disk=disk) if disk is not None else FileStore(path)
    log = LogManager.over(store, durability).create(tp, TOPIC_ID, config)
    assert not send(log, batch()).error
    return log


def large(log: PartitionLog, producer_id: int = -1, sequence: int = -1, **how) -> Write:
    epoch = 0 if producer_id >= 0 else -1
    return Write(log.tp, log, batch(1, producer_id, epoch, sequence, value=LARGE, **how), ErrorCode.NONE)


def append(write: Write):
    return write.log.append(write.batch, AppendOrigin.CLIENT, NOW_MS, guard=write.guard, checked=write.checked)


async def put(writes: LargeWrites, write: Write):
    async with writes.staged([write], 0, NOW_MS):
        return append(write)


def only_file(path: Path, tp: TopicPartition = TP) -> Path:
    return path / str(tp) / "00000000000000000000.log"


async def test_the_event_loop_writes_nothing_of_a_large_batch(tmp_path):
    disk = SpiedDisk()
    log = opened(tmp_path, disk)
    disk.by_the_loop.clear()
    write = large(log, 7, 0)
    info = await put(LargeWrites(1, lambda log: True), write)
    assert (info.error, info.base_offset) == (ErrorCode.NONE, 1)
    assert disk.by_the_loop == []
    assert sum(disk.by_threads) == len(write.batch)
    assert [header.base_offset for header in headers_from_disk(tmp_path)] == [0, 1]
    assert only_file(tmp_path).stat().st_size == log.segments.size_bytes


async def test_the_event_loop_goes_on_while_the_disk_makes_the_thread_wait(tmp_path):
    disk = SpiedDisk()
    log, other = opened(tmp_path, disk), opened(tmp_path, tp=TopicPartition("other", 0))
    disk.go_on.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(put, LargeWrites(1, lambda log: True), large(log))
        assert await trio.to_thread.run_sync(disk.held.wait, 60)
        assert not send(other, batch()).error
        assert log.log_end_offset == 1, "what is staged does not count"
        disk.go_on.set()
    assert log.log_end_offset == 2


def test_a_small_append_takes_the_room_of_what_is_staged(tmp_path):
    """Row T8: the marker is in its place, and the large batch behind it, in one piece."""
    log = opened(tmp_path)
    transact(log, 7, 0, 0)
    write = large(log)
    staged = stage(log, write, 0, NOW_MS)
    assert staged is not None
    staged.sync()
    assert end(log, 7, 0, commit=False).base_offset == 2
    assert append(write).base_offset == 3
    kept = [(header.base_offset, header.is_control) for header in headers(log)]
    assert kept == [(0, False), (1, False), (2, True), (3, False)]
    assert headers_from_disk(tmp_path) == headers(log)
    assert only_file(tmp_path).stat().st_size == log.segments.size_bytes


def test_a_marker_that_fences_a_staged_batch_leaves_nothing_of_it(tmp_path):
    """Row T16: what a later epoch's marker overtakes is refused, and not even a crash brings it back."""
    log = opened(tmp_path)
    transact(log, 7, 0, 0)
    write = large(log, 7, 1, transactional=True)
    staged = stage(log, write, 2, NOW_MS)
    assert staged is not None
    staged.sync()
    assert not log.append_marker(7, 1, True, 0, 2, NOW_MS).error
    assert append(write).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert headers_from_disk(tmp_path) == headers(log)
    assert len(headers(log)) == 3
    assert only_file(tmp_path).stat().st_size == log.segments.size_bytes


@pytest.mark.parametrize("why", ["crc", "sequence", "epoch", "size", "offset", "duplicate", "cut short"])
def test_what_an_append_would_refuse_is_never_staged(tmp_path, why):
    """A crash makes a part of the log of what is staged, so rows P2 to P4 and L8 hold before."""
    log = opened(tmp_path, config=replace(DEFAULTS, max_message_bytes=len(LARGE) + 1000))
    send(log, batch(1, 7, 0, 0))
    write = large(log, 7, 1)
    if why == "crc":
        write.batch[-1] ^= 1
    elif why == "sequence":
        write = large(log, 7, 5)
    elif why == "epoch":
        assert not log.append_marker(7, 3, True, 0, 1, NOW_MS).error
    elif why == "size":
        write.batch = batch(1, 7, 0, 1, value=LARGE + bytes(2000))
    elif why == "offset":
        write.batch[7] = 1
    elif why == "duplicate":
        assert not append(large(log, 7, 1)).error
    else:
        write.batch = write.batch[:-1]
    end_offset = log.log_end_offset
    assert stage(log, write, 0, NOW_MS) is None
    info = append(write)
    assert info.duplicate if why == "duplicate" else info.error
    assert log.log_end_offset == end_offset


def test_a_crash_between_writing_and_appending_is_one_right_after_the_append(tmp_path):
    """Row P3: the batch was never acknowledged, so its producer sends it again, and it is a repetition."""
    log = opened(tmp_path)
    write = large(log, 7, 0)
    staged = stage(log, write, 0, NOW_MS)
    assert staged is not None
    staged.sync()
    again = LogManager.over(FileStore(tmp_path), "os").create(TP, TOPIC_ID, DEFAULTS)
    assert [header.base_offset for header in headers(again)] == [0, 1]
    assert send(again, large(log, 7, 0).batch).duplicate


def test_a_crash_in_the_middle_of_it_leaves_a_torn_end(tmp_path):
    """Row L2: it is cut off like any half-written batch."""
    log = opened(tmp_path)
    staged = stage(log, large(log), 0, NOW_MS)
    assert staged is not None
    staged.sync()
    file = only_file(tmp_path)
    with file.open("r+b") as writable:
        writable.truncate(file.stat().st_size - PIECE_BYTES)
    assert [header.base_offset for header in headers_from_disk(tmp_path)] == [0]


def test_what_is_taken_back_is_gone(tmp_path):
    log = opened(tmp_path)
    staged = stage(log, large(log), 0, NOW_MS)
    assert staged is not None
    staged.sync()
    log.segments.unstage(staged)
    assert only_file(tmp_path).stat().st_size == log.segments.size_bytes
    log.segments.unstage(staged)
    assert send(log, batch()).base_offset == 1


@pytest.mark.parametrize("act", ["roll", "truncate", "reserve", "close"])
def test_whatever_else_is_done_to_the_file_meanwhile(tmp_path, act):
    log = opened(tmp_path, durability="fsync")
    write = large(log)
    staged = stage(log, write, 0, NOW_MS)
    assert staged is not None
    staged.sync()
    used = log.segments.size_bytes
    if act == "roll":
        log.roll(NOW_MS)
        assert only_file(tmp_path).stat().st_size == used
    elif act == "truncate":
        log.segments.active.file.truncate(used)
        assert only_file(tmp_path).stat().st_size == used
    elif act == "reserve":
        settle_small(log)
        assert only_file(tmp_path).stat().st_size == used + len(write.batch), "no mark goes where a thread writes"
    else:
        log.close()
        assert only_file(tmp_path).stat().st_size == used
        return
    log.segments.unstage(staged)
    assert append(write).base_offset == 1
    settle(log)
    assert len(headers(log)) == 2
    assert headers_from_disk(tmp_path) == headers(log)


def test_a_staged_batch_in_reserved_room_is_followed_by_the_mark(tmp_path):
    log = opened(tmp_path, durability="fsync")
    settle_small(log)
    write = Write(TP, log, batch(1, value=bytes(1000)), ErrorCode.NONE)
    staged = stage(log, write, 0, NOW_MS)
    assert staged is not None
    staged.sync()
    assert append(write).base_offset == 1
    data = only_file(tmp_path).read_bytes()
    assert data[log.segments.size_bytes :].rstrip(b"\0") == END_MARK.rstrip(b"\0")
    assert send(log, batch()).base_offset == 2
    settle(log)
    assert headers_from_disk(tmp_path) == headers(log)


async def test_where_the_disk_is_full_the_append_says_so_and_goes_on_when_it_is_not(tmp_path):
    disk = SpiedDisk()
    log = opened(tmp_path, disk)
    writes = LargeWrites(1, lambda log: True)
    disk.full = True
    assert (await put(writes, large(log))).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert only_file(tmp_path).stat().st_size == log.segments.size_bytes
    disk.full = False
    assert (await put(writes, large(log))).base_offset == 1
    assert headers_from_disk(tmp_path) == headers(log)


async def test_withdrawing_waits_for_the_piece_under_way_and_no_other_follows(tmp_path):
    """Or the thread would write over what the event loop has put there meanwhile."""
    disk = SpiedDisk()
    log = opened(tmp_path, disk)
    disk.go_on.clear()
    write = large(log)
    staged = stage(log, write, 0, NOW_MS)
    assert staged is not None
    thread = threading.Thread(target=staged.sync)
    thread.start()
    assert await trio.to_thread.run_sync(disk.held.wait, 60)
    release = threading.Timer(0.05, disk.go_on.set)
    release.start()
    small = batch(1, value=b"first")
    assert send(log, small).base_offset == 1
    assert disk.go_on.is_set(), "the small one waited"
    await trio.to_thread.run_sync(thread.join)
    release.join()
    assert len(disk.by_threads) == 1
    assert append(write).base_offset == 2
    assert headers_from_disk(tmp_path) == headers(log)


async def test_large_batches_for_one_log_come_one_after_the_other(tmp_path):
    log = opened(tmp_path)
    writes = LargeWrites(1, lambda log: True)
    offsets = []

    async def one():
        offsets.append((await put(writes, large(log))).base_offset)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(one)
    assert offsets == [1, 2, 3, 4, 5]
    assert headers_from_disk(tmp_path) == headers(log)
    assert not writes._append_locks


async def test_two_requests_for_the_same_logs_in_another_order_do_not_wait_for_each_other(tmp_path):
    disk = SpiedDisk()
    logs = [opened(tmp_path, disk, TopicPartition("t", number)) for number in range(2)]
    writes = LargeWrites(1, lambda log: True)

    async def both(order):
        found = [large(log) for log in order]
        async with writes.staged([*found, large(order[0])], 0, NOW_MS):
            for write in found:
                assert not append(write).error

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(both, logs)
                nursery.start_soon(both, logs[::-1])
    assert [log.log_end_offset for log in logs] == [7, 7]
    assert not writes._append_locks


async def test_a_task_cancelled_while_it_waits_holds_up_no_other(tmp_path):
    disk = SpiedDisk()
    log = opened(tmp_path, disk)
    writes = LargeWrites(1, lambda log: True)
    disk.go_on.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(put, writes, large(log))
        assert await trio.to_thread.run_sync(disk.held.wait, 60)
        with trio.move_on_after(0.01):
            await put(writes, large(log))
        disk.go_on.set()
    assert (await put(writes, large(log))).base_offset == 2
    assert not writes._append_locks


async def test_a_thread_is_only_asked_while_there_is_something_to_wait_for(tmp_path, autojump_clock):
    """And a second longer, for then there may be."""
    flushing = False
    log = opened(tmp_path)
    writes = LargeWrites(1, lambda log: flushing)
    assert not writes.wants(log)
    flushing = True
    assert writes.wants(log)
    flushing = False
    await trio.sleep(0.9)
    assert writes.wants(log)
    await trio.sleep(0.2)
    assert not writes.wants(log)


async def test_or_while_another_batch_is_staged_which_would_lose_its_room(tmp_path):
    disk = SpiedDisk()
    log, other = opened(tmp_path, disk), opened(tmp_path, tp=TopicPartition("other", 0))
    writes = LargeWrites(1, lambda log: False)
    disk.go_on.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(put, writes, large(log))
        assert await trio.to_thread.run_sync(disk.held.wait, 60)
        assert (writes.wants(log), writes.wants(other)) == (True, False)
        disk.go_on.set()
    assert not writes.wants(log)
