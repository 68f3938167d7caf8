"""`os` durability where writebacks meet flushes, deletions and very many files (decision 48)."""

import gc
import threading
import weakref

import pytest
import trio
import trio.testing

from fencepost.broker.coordinator_logs import PartitionCoordinatorLog
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability import flusher as commit_module
from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.broker.log.durability.sync_threads import SyncThreads
from fencepost.broker.log.durability.unflushed import Unflushed
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.descriptor_pool import DescriptorPool
from fencepost.broker.log.storage.disk_file import DiskFile
from fencepost.broker.log.storage.memory import MemoryStore
from tests.kit.slow_disk import until
from tests.kit.trimming import delete_records
from tests.unit.log.kit import TOPIC_ID, TP, batch, directory_over, over, running, send, settle
from tests.unit.log.unflushed_kit import MAX, OTHER, WRITEBACK, Watched, logs_on, write

pytestmark = pytest.mark.usefixtures("small_steps")


class Gated(Watched):
    """Its flushes wait at a gate as well."""

    def __init__(self):
        super().__init__()
        self.flush_gate = threading.Event()
        self.flush_gate.set()
        self.flushing = threading.Event()
        fdatasync = self.fdatasync

        def wait_and_flush(fd):
            self.flushing.set()
            self.flush_gate.wait(100)
            fdatasync(fd)

        self.fdatasync = wait_and_flush


async def test_who_waits_goes_on_when_the_count_falls_without_a_writeback(tmp_path):
    """A flush, or the end of a topic, leaves nothing to write back: nothing else would wake what waits for it."""
    disk = Gated()
    commit = LogFlusher("os", unflushed_bytes_max=MAX)
    directory = logs_on(disk, tmp_path)
    log, large, flushed = (directory.create(TP._replace(partition=n), TOPIC_ID, LogConfig()) for n in range(3))
    async with running(commit), trio.open_nursery() as nursery:
        write(commit, flushed, 10)
        disk.flush_gate.clear()
        nursery.start_soon(commit.flush, flushed)
        await until(disk.flushing.is_set)
        write(commit, large, MAX * 2)
        end_offset = send(log, batch()).last_offset + 1
        nursery.start_soon(commit.wait, Ticket(log, end_offset))
        await trio.testing.wait_all_tasks_blocked()
        directory.delete(large.tp)
        await commit.throttle([large])  # of a request that was under way
        disk.flush_gate.set()


async def test_what_a_flush_took_is_not_counted_any_more(tmp_path):
    disk = Watched()
    commit = LogFlusher("os", unflushed_bytes_max=MAX)
    directory = logs_on(disk, tmp_path)
    log, other = (directory.create(tp, TOPIC_ID, LogConfig()) for tp in (TP, OTHER))
    async with running(commit):
        write(commit, other, MAX * 9 // 10)
        await commit.flush(other)
        write(commit, log, MAX * 9 // 10)
        await trio.testing.wait_all_tasks_blocked()
    assert disk.ranges == []


async def test_what_comes_after_a_flush_is_counted_as_before(tmp_path):
    disk = Watched()
    commit = LogFlusher("os", unflushed_bytes_max=MAX)
    log = logs_on(disk, tmp_path).create(TP, TOPIC_ID, LogConfig())
    async with running(commit):
        write(commit, log, 100)
        await commit.flush(log)
        write(commit, log, MAX * 2)
        await until(lambda: disk.ranges)


def test_deleted_topics_are_not_remembered_for_ever():
    """A broker for tests makes and deletes topics by the thousand, each with a few bytes."""
    directory = directory_over(MemoryStore(), "os")
    found = Unflushed(1 << 30)
    kept = directory.create(OTHER, TOPIC_ID, LogConfig())
    send(kept, batch())
    found.look(kept)
    gone = []
    for _ in range(1000):
        log = directory.create(TP, TOPIC_ID, LogConfig())
        send(log, batch())
        found.look(log)
        directory.delete(TP)
        gone.append(weakref.ref(log))
        del log
    gc.collect()
    assert sum(ref() is not None for ref in gone) < 200
    assert found.total_bytes < 200 * kept.unflushed_bytes
    assert found.largest_first() == [kept]


class Counted(Watched):
    """It tells how many files were open at a time."""

    def __init__(self):
        super().__init__()
        self.open_now = self.most = 0
        open_, close = self.open, self.close
        lock = threading.Lock()

        def count_open(path, flags, mode):
            fd = open_(path, flags, mode)
            with lock:
                self.open_now += 1
                self.most = max(self.most, self.open_now)
            return fd

        def count_close(fd):
            with lock:
                self.open_now -= 1
            close(fd)

        self.open, self.close = count_open, count_close


async def test_a_writeback_opens_a_bounded_number_of_files(tmp_path, monkeypatch):
    """They are held open until it is done: of very many logs with a little each it takes but some at a time."""
    disk = Counted()
    commit = LogFlusher("os", unflushed_bytes_max=100)
    monkeypatch.setattr(commit_module, "WRITEBACK_BYTES", 1 << 20)
    directory = logs_on(disk, tmp_path)
    logs = [directory.create(TP._replace(partition=number), TOPIC_ID, LogConfig()) for number in range(300)]
    for log in logs:
        write(commit, log, 10)
        for segment in log.segments:
            segment.close()
    assert disk.open_now == 0
    disk.most = 0
    async with running(commit):
        await until(lambda: sum(log.unflushed_bytes for log in logs) <= 100)
    assert len(disk.ranges) >= 299
    assert disk.most <= 100 + commit_module.WRITEBACK_FILES, "the pool's, and those of one writeback"


class AlwaysBrief(SyncThreads):
    """The disk has been quick so far."""

    def is_brief(self, count, size_bytes):
        return size_bytes <= 1000


async def test_what_was_written_back_is_never_flushed_by_the_event_loop(tmp_path):
    """None of it is durable: a flush has the journal and the disk's cache before it, with nothing left to write."""
    disk = Watched()
    flushed_in = []
    fdatasync = disk.fdatasync

    def note_and_flush(fd):
        flushed_in.append(threading.current_thread())
        fdatasync(fd)

    disk.fdatasync = note_and_flush
    commit = LogFlusher("os", threads=AlwaysBrief(), unflushed_bytes_max=0)
    log = logs_on(disk, tmp_path).create(TP, TOPIC_ID, LogConfig())
    async with running(commit):
        write(commit, log, MAX * 2)
        await until(lambda: log.unflushed_bytes < WRITEBACK)
        await commit.flush(log)
    assert flushed_in
    assert threading.current_thread() not in flushed_in


async def test_what_retention_took_away_is_not_counted_for_ever(tmp_path):
    """The next writeback finds little to write in its log, and that is all there was."""
    directory = logs_on(Watched(), tmp_path)
    log = directory.create(TP, TOPIC_ID, LogConfig(segment_bytes=400))
    for _ in range(20):
        end_offset = send(log, batch()).last_offset + 1
    error, _ = delete_records(log, end_offset)
    assert not error
    send(log, batch())
    size_bytes, sync_targets = log.begin_writeback(1 << 20)
    for target in sync_targets:
        target.sync()
    later = send(log, batch())
    assert not later.error
    log.finish_writeback(size_bytes)
    assert log.unflushed_bytes == len(batch())


def test_what_is_written_behind_a_cut_is_written_back_as_well(tmp_path):
    """Recovery cuts off a damaged end; what comes in its place is as dirty as what comes later."""
    directory = logs_on(Watched(), tmp_path)
    log = directory.create(TP, TOPIC_ID, LogConfig())
    for _ in range(4):
        send(log, batch())
    size = len(batch())
    file = DiskFile(log.store, "00000000000000000000.log", DescriptorPool(10))
    assert file.size_bytes == 4 * size
    file.truncate(size)
    assert file.writeback(1 << 20) == (0, None)
    file.write(size, batch())
    assert file.writeback(1 << 20)[0] == size
    file.write(0, batch())
    assert file.writeback(1 << 20)[0] == 2 * size, "what stands there is written again"


async def test_coordinators_are_not_held_back(tmp_path):
    """They write little, and many wait for them: only who produces waits for the disk."""
    disk = Watched()
    commit = LogFlusher("os", unflushed_bytes_max=MAX)
    directory = logs_on(disk, tmp_path)
    log, own = (directory.create(tp, TOPIC_ID, LogConfig()) for tp in (TP, OTHER))
    books = PartitionCoordinatorLog(own, commit)
    async with running(commit):
        disk.gate.clear()
        write(commit, log, MAX * 3)
        assert commit.over_backlog([log])
        for number in range(20):
            ticket = books.append([(b"key", b"%d" % number)], 1)
            assert ticket.is_durable
            await ticket.durable()
        disk.gate.set()


async def test_closed_segments_are_flushed_before_there_are_too_many_to_open(tmp_path, monkeypatch):
    """A flush holds all their files open at once, four of each; writers wait where the disk is slow."""
    disk = Gated()
    commit = LogFlusher("os", unflushed_bytes_max=1 << 30)
    log = logs_on(disk, tmp_path).create(TP, TOPIC_ID, LogConfig(segment_bytes=100))
    pinned = []
    sync_targets = log.segments.sync_targets

    def noted():
        found = sync_targets()
        pinned.append(len(found))
        return found

    monkeypatch.setattr(log.segments, "sync_targets", noted)
    count = 0

    async def produce():
        nonlocal count
        while True:
            end_offset = send(log, batch()).last_offset + 1
            count += 1
            if not commit.is_settled(Ticket(log, end_offset)):
                await commit.wait(Ticket(log, end_offset))
            await trio.lowlevel.checkpoint()

    async with running(commit), trio.open_nursery() as writer:
        disk.flush_gate.clear()
        writer.start_soon(produce)
        await until(disk.flushing.is_set)
        await trio.sleep(0.1)  # it would write on and on
        assert count < 300
        disk.flush_gate.set()
        await until(lambda: count > 1000)
        writer.cancel_scope.cancel()
    assert max(pinned) < 500


@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize("clean", [True, False])
async def test_the_first_flush_after_a_start_does_not_open_all_segments_at_once(tmp_path, durability, clean):
    """Of a log of hundreds of GB there are more than a process may have open, and all of them are flushed then."""
    disk = Counted()
    directory = logs_on(disk, tmp_path, durability)
    log = directory.create(TP, TOPIC_ID, LogConfig(segment_bytes=100))
    for _ in range(200):
        send(log, batch())
        if not len(log.segments) % 8:
            settle(log)
    if clean:
        directory.close()
    settle(log)
    directory.write_checkpoints()
    log.segments.close()
    directory = logs_on(disk, tmp_path, durability)
    log = directory.create(TP, TOPIC_ID, LogConfig(segment_bytes=100))
    assert len(log.segments) == 200
    send(log, batch())
    commit = LogFlusher(durability)
    flushed, disk.calls, disk.most = len(disk.calls), [], 0
    assert flushed
    async with running(commit):
        await commit.flush(log)
    assert disk.calls.count("fdatasync") >= 200
    assert disk.most <= 100 + 20, "the pool's, and one of each thread"


async def test_a_deleted_topic_with_many_closed_segments_holds_no_writer_back(tmp_path):
    disk = Watched()
    commit = LogFlusher("os", unflushed_bytes_max=1 << 30)
    directory = logs_on(disk, tmp_path)
    log = directory.create(TP, TOPIC_ID, LogConfig(segment_bytes=100))
    for _ in range(200):
        end_offset = send(log, batch()).last_offset + 1
    directory.delete(TP)
    async with running(commit):
        await commit.wait(Ticket(log, end_offset))
        await commit.throttle([log])


def test_the_bound_holds_for_very_many_logs(tmp_path):
    """Each of them has something that was not looked at yet; together that is no more than the bound."""
    found = Unflushed(100 * MAX)
    logs = []
    for _ in range(1000):
        log = over(MemoryStore(), durability="os")
        logs.append(log)
        send(log, batch())
        found.look(log)
    for log in logs:
        found.look(log)
    for _ in range(30):
        for log in logs:
            send(log, batch())
            if log.segments.written_bytes >= log.flush_at_bytes:
                found.look(log)
    unseen = sum(log.unflushed_bytes for log in logs) - found.total_bytes
    assert unseen <= found.max_bytes
