"""`os` durability: what the kernel may keep, and how it is written back of what is too much (decision 48)."""

import errno
import math
from dataclasses import dataclass

import pytest
import trio

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability import checkpoint_pace, unflushed
from fencepost.broker.log.durability import flusher as commit_module
from fencepost.broker.log.durability.checkpoint_pace import CheckpointPace
from fencepost.broker.log.durability.checkpointing import Checkpointer
from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.broker.log.durability.unflushed import Unflushed, bytes_max, kept_seconds
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import FlushFailed
from tests.kit.slow_disk import until
from tests.unit.log.kit import TOPIC_ID, TP, batch, over, running, send
from tests.unit.log.unflushed_kit import MAX, OTHER, WRITEBACK, Watched, logs_on, write

UNSEEN = MAX // 8
"""Two logs may hold so much more that was not looked at yet."""
pytestmark = pytest.mark.usefixtures("small_steps")


async def test_what_is_little_is_left_to_the_kernel(tmp_path):
    """A test's topic need never reach the disk: nobody flushes it for its first batch, nor for a new segment."""
    disk = Watched()
    commit = LogFlusher("os", unflushed_bytes_max=MAX)
    log = logs_on(disk, tmp_path).create(TP, TOPIC_ID, LogConfig(segment_bytes=400))
    async with running(commit):
        for _ in range(10):
            end_offset = send(log, batch()).last_offset + 1
            assert commit.is_settled(Ticket(log, end_offset))
            commit.schedule(log)
        await trio.testing.wait_all_tasks_blocked()
        assert len(log.segments) > 1
        assert (disk.calls, commit.rounds) == ([], 0)


async def test_too_much_is_written_a_little_at_a_time_and_in_order(tmp_path):
    disk = Watched()
    commit = LogFlusher("os", unflushed_bytes_max=MAX)
    log = logs_on(disk, tmp_path).create(TP, TOPIC_ID, LogConfig())
    async with running(commit):
        write(commit, log, MAX * 2)
        await until(lambda: log.unflushed_bytes <= MAX + UNSEEN)
        await trio.testing.wait_all_tasks_blocked()
    assert disk.ranges[0][0] == 0
    assert all(0 < stop - start <= WRITEBACK for start, stop in disk.ranges)
    assert [start for start, _ in disk.ranges[1:]] == [stop for _, stop in disk.ranges[:-1]]
    assert log.unflushed_bytes > MAX - WRITEBACK, "no more than it takes"
    assert "fdatasync" not in disk.calls
    assert log.recovery_point == 0, "nothing of it is durable"


async def test_segments_that_were_closed_go_before_the_one_that_is_written_to(tmp_path):
    disk = Watched()
    commit = LogFlusher("os", unflushed_bytes_max=MAX)
    log = logs_on(disk, tmp_path).create(TP, TOPIC_ID, LogConfig(segment_bytes=700))
    async with running(commit):
        write(commit, log, MAX * 2)
        await until(lambda: log.unflushed_bytes <= MAX + UNSEEN)
        await trio.testing.wait_all_tasks_blocked()
    sizes = [segment.size_bytes for segment in log.segments]
    assert sum(stop - start for start, stop in disk.ranges) == sum(sizes) - log.unflushed_bytes
    assert sum(start == 0 for start, _ in disk.ranges) > 2, "several files"


async def test_the_logs_that_hold_most_are_written_back(tmp_path):
    disk = Watched()
    commit = LogFlusher("os", unflushed_bytes_max=MAX)
    directory = logs_on(disk, tmp_path)
    log, other = (directory.create(tp, TOPIC_ID, LogConfig()) for tp in (TP, OTHER))
    async with running(commit):
        write(commit, other, MAX // 5)
        write(commit, log, MAX)
        await until(lambda: log.unflushed_bytes + other.unflushed_bytes <= MAX + UNSEEN)
        await trio.testing.wait_all_tasks_blocked()
        assert other.unflushed_bytes == other.segments.written_bytes
        assert log.unflushed_bytes < log.segments.written_bytes


@pytest.mark.parametrize("acks", ["all", "leader"])
async def test_writers_wait_when_the_disk_falls_behind(tmp_path, acks):
    """Or the kernel would stop the event loop in the middle of a write, when too much of its memory is dirty."""
    disk = Watched()
    commit = LogFlusher("os", unflushed_bytes_max=MAX)
    log = logs_on(disk, tmp_path).create(TP, TOPIC_ID, LogConfig())
    written = 0

    async def produce():
        nonlocal written
        while True:
            written = send(log, batch()).last_offset + 1
            if acks == "all":
                if not commit.is_settled(Ticket(log, written)):
                    await commit.wait(Ticket(log, written))
            else:
                commit.schedule(log)
                if commit.over_backlog([log]):
                    await commit.throttle([log])
            await trio.lowlevel.checkpoint()

    async with running(commit):
        disk.gate.clear()
        async with trio.open_nursery() as writer:
            writer.start_soon(produce)
            await until(lambda: log.unflushed_bytes > MAX + WRITEBACK)
            await trio.sleep(0.1)  # it would write on and on
            writer.cancel_scope.cancel()
        assert log.unflushed_bytes < MAX + WRITEBACK + 500
        assert log.high_watermark == written, "readers see what is in the page cache"
        disk.gate.set()
        await commit.throttle([log])
        assert commit.is_settled(Ticket(log, written))


async def test_what_is_kept_in_memory_holds_no_writer_back():
    log = over(MemoryStore(), durability="os")
    commit = LogFlusher("os", unflushed_bytes_max=MAX)
    async with running(commit):
        for _ in range(100):
            end_offset = send(log, batch()).last_offset + 1
            if not commit.is_settled(Ticket(log, end_offset)):
                await commit.wait(Ticket(log, end_offset))
        await until(lambda: log.unflushed_bytes <= MAX + UNSEEN)


async def test_a_deleted_topic_holds_no_writer_back_and_is_never_written(tmp_path):
    disk = Watched()
    commit = LogFlusher("os", unflushed_bytes_max=MAX)
    directory = logs_on(disk, tmp_path)
    for number in range(5):
        tp = TP._replace(partition=number)
        log = directory.create(tp, TOPIC_ID, LogConfig())
        async with running(LogFlusher("os", unflushed_bytes_max=MAX)):
            write(commit, log, MAX // 2)
        directory.delete(tp)
    left = directory.create(OTHER._replace(partition=9), TOPIC_ID, LogConfig())
    async with running(commit):
        end_offset = send(left, batch()).last_offset + 1
        await commit.wait(Ticket(left, end_offset))
        await trio.testing.wait_all_tasks_blocked()
    assert disk.calls == []


async def test_a_writeback_that_fails_is_a_failed_flush(tmp_path):
    """The kernel tells an error once, and has dropped the pages: never tried again as if nothing had been."""
    disk = Watched()
    disk.error = OSError(errno.EIO, "Input/output error")
    lost = []
    commit = LogFlusher("os", lambda log, error: lost.append(error), unflushed_bytes_max=MAX)
    log = logs_on(disk, tmp_path / "a").create(TP, TOPIC_ID, LogConfig())
    async with running(commit):
        write(commit, log, MAX + 200)
        await until(lambda: log.offline)
        await trio.testing.wait_all_tasks_blocked()
    assert [type(error) for error in lost] == [FlushFailed]
    assert "sync_file_range" in str(lost[0])

    fatal = LogFlusher("os", unflushed_bytes_max=MAX)
    log = logs_on(disk, tmp_path / "b").create(TP, TOPIC_ID, LogConfig())
    write(fatal, log, MAX + 200)
    with pytest.raises(FlushFailed):
        await fatal.run()


async def test_a_checkpoint_is_prepared_a_little_at_a_time(tmp_path, monkeypatch):
    """A flush of hundreds of MiB at once would fill the disk's queue, and whatever else is wanted of it waits (44)."""
    monkeypatch.setattr(checkpoint_pace, "LAZY_BYTES", 100)
    disk = Watched()
    commit = LogFlusher("os", unflushed_bytes_max=MAX * 10)
    directory = logs_on(disk, tmp_path)
    log = directory.create(TP, TOPIC_ID, LogConfig())
    async with running(commit):
        write(commit, log, MAX * 2)
        assert disk.calls == []
        await Checkpointer(directory, commit, lambda: 1.0).run_once()
    first_flush = disk.calls.index("fdatasync")
    assert all(stop - start <= WRITEBACK for start, stop in disk.calls[:first_flush])
    assert disk.calls[first_flush - 1][1] >= log.segments.size_bytes - WRITEBACK
    assert log.recovery_point == log.log_end_offset


@dataclass
class Writes:
    """The counts of a log."""

    written_bytes: int = 7
    written_batches: int = 3
    has_unsynced_closed: bool = False


@pytest.mark.parametrize("lazy", [False, True])
def test_a_checkpoint_is_due_after_bytes_batches_or_time(lazy):
    enough = checkpoint_pace.LAZY_BYTES if lazy else checkpoint_pace.CHECKPOINT_BYTES
    age = checkpoint_pace.LAZY_AGE_SECONDS if lazy else checkpoint_pace.CHECKPOINT_AGE_SECONDS
    log = Writes()
    pace = CheckpointPace(log, lazy=lazy)
    log.written_bytes += enough - 1
    assert not pace.due(1000.0)
    log.written_bytes += 1
    assert pace.due(1001.0)
    assert not pace.due(1001.0 + 10 * age), "nothing new"
    log.written_bytes += checkpoint_pace.CHECKPOINT_BYTES_MIN
    assert not pace.due(1001.0 + age - 1)
    assert pace.due(1001.0 + age)
    log.written_batches += checkpoint_pace.CHECKPOINT_BATCHES - 1
    assert not pace.due(1001.0 + age)
    log.written_batches += 1
    assert pace.due(1001.0 + age)
    log.has_unsynced_closed = True
    assert not pace.due(1001.0 + age)
    log.written_bytes += 1
    assert pace.due(1001.0 + age) is lazy, "who waits for the disk has flushed it already"


def test_the_bound_is_a_share_of_the_memory_that_this_process_may_use(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(unflushed, "_LIMITS", (str(limit), str(tmp_path / "nothing")))
    limit.write_text("max\n")
    alone = bytes_max()
    assert 1 << 20 <= alone <= 1 << 30
    limit.write_text(f"{480 << 20}\n")
    assert bytes_max() == min(alone, 20 << 20)
    limit.write_text("1000\n")
    assert bytes_max() == 1 << 20


def test_a_log_that_is_gone_is_not_counted():
    log = over(MemoryStore(), durability="os")
    found = Unflushed(10)
    send(log, batch())
    found.look(log)
    assert found.is_too_much
    log.disown("deleted")
    assert found.largest_first() == []
    assert found.total_bytes == 0


def test_what_the_kernel_has_written_by_itself_is_not_counted(tmp_path, monkeypatch):
    """It writes what is as old as vm.dirty_expire_centisecs; the logs that are quiet for longer need no writeback."""
    for name, centiseconds in (("expire", 3000), ("writeback", 500)):
        (tmp_path / name).write_text(f"{centiseconds}\n")
    monkeypatch.setattr(unflushed, "_EXPIRY", (str(tmp_path / "expire"), str(tmp_path / "writeback")))
    assert 35 <= kept_seconds() < 40
    seconds = 0.0
    found = Unflushed(MAX, lambda: seconds)
    directory = LogManager.over(MemoryStore(), "os")
    quiet, busy = (directory.create(tp, TOPIC_ID, LogConfig()) for tp in (TP, OTHER))
    for log in (busy, quiet):
        while log.unflushed_bytes < MAX * 0.6:
            send(log, batch())
    found.look(busy)
    found.look(quiet)
    assert found.is_too_much
    seconds = 30.0
    found.look(busy)
    assert found.is_too_much
    seconds = 40.0
    found.look(busy)
    assert not found.is_too_much
    assert found.total_bytes == busy.unflushed_bytes
    (tmp_path / "expire").write_text("never\n")
    assert kept_seconds() == math.inf


async def test_only_the_log_that_is_written_back_is_being_flushed(tmp_path):
    """Large batches for others need no thread meanwhile (decision 46)."""
    disk = Watched()
    commit = LogFlusher("os", unflushed_bytes_max=MAX)
    directory = logs_on(disk, tmp_path)
    log, other = (directory.create(tp, TOPIC_ID, LogConfig()) for tp in (TP, OTHER))
    write(commit, other, 100)
    async with running(commit):
        disk.gate.clear()
        write(commit, log, MAX + 200)
        await until(lambda: commit.is_flushing(log))
        assert not commit.is_flushing(other)
        disk.gate.set()
        await until(lambda: not commit.is_flushing(log))


@pytest.mark.parametrize("gone", ["deleted", "offline"])
async def test_no_round_follows_another_for_a_log_that_is_gone(tmp_path, gone):
    """Its closed segments stay closed and unflushed: nothing that can be done, nor should be tried again and again."""
    commit = LogFlusher("os", lambda log, error: None, unflushed_bytes_max=1 << 20)
    directory = logs_on(Watched(), tmp_path)
    log = directory.create(TP, TOPIC_ID, LogConfig(segment_bytes=200))
    while log.segments.closed_since_sync <= commit_module.CLOSED_MAX:
        send(log, batch())
    commit.schedule(log)
    if gone == "deleted":
        directory.delete(TP)
    else:
        log.take_offline(OSError(errno.EIO, "Input/output error"))
    async with running(commit):
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        assert commit.rounds == 1
