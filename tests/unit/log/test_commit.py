"""Group commit: who waits for which round (performance.md, structure 3; reliability.md on fsync)."""

import threading

import pytest
import trio
import trio.testing

from fencepost.broker.log.commit import GroupCommit
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.directory import LogDirectory
from fencepost.broker.log.memory import MemoryFile, MemoryStore
from tests.unit.log.kit import TOPIC_ID, TP, UNCOMMITTED, batch, crashed, headers, over, send


class SlowDisk(MemoryStore):
    """A store whose syncs wait for a gate and are counted."""

    def __init__(self, place="slow:", top=None):
        super().__init__(place)
        self.top = top or self
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Semaphore(0)
        self.syncs = 0
        self.error = None

    def new_child(self, name):
        return SlowDisk(f"{self.place}/{name}", self.top)

    def new_file(self, name):
        file = _SlowFile(f"{self.place}/{name}")
        file.disk = self.top
        return file


class _SlowFile(MemoryFile):
    disk: SlowDisk

    def pin(self):
        return self if self.exists else None

    def sync(self):
        self.disk.begun.release()
        self.disk.gate.wait(10)
        if self.disk.error:
            raise self.disk.error
        self.disk.syncs += 1


async def until(condition):
    """Let the round go on until `condition` holds; the time limit of the test is the only bound."""
    while not condition():
        await trio.lowlevel.checkpoint()


async def test_wait_returns_when_durable_and_not_before():
    disk = SlowDisk()
    log = over(disk, durability="fsync")
    commit = GroupCommit("fsync")
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        info = send(log, batch())
        assert log.high_watermark == 0
        await commit.wait(log, info.last_offset + 1)
        assert log.high_watermark == log.recovery_point == 1
        assert disk.syncs == 1
        nursery.cancel_scope.cancel()


async def test_who_asks_during_a_round_waits_for_the_next_and_rounds_are_shared():
    disk = SlowDisk()
    log = over(disk, durability="fsync")
    commit = GroupCommit("fsync")
    done = []

    async def produce(name):
        info = send(log, batch())
        await commit.wait(log, info.last_offset + 1)
        done.append(name)

    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        disk.gate.clear()
        nursery.start_soon(produce, "first")
        await trio.to_thread.run_sync(disk.begun.acquire)
        for name in ("second", "third", "fourth"):
            nursery.start_soon(produce, name)
        await trio.testing.wait_all_tasks_blocked()
        assert (log.log_end_offset, log.high_watermark, done) == (4, 0, [])
        disk.gate.set()
        await until(lambda: len(done) == 4)
        assert done[0] == "first"
        assert commit.rounds == 2, "one for the first, one for all the others"
        nursery.cancel_scope.cancel()


async def test_wait_does_not_yield_when_already_durable():
    log = over(MemoryStore(), durability="os")
    commit = GroupCommit("os")
    info = send(log, batch())
    with trio.testing.assert_no_checkpoints():
        await commit.wait(log, info.last_offset + 1)


async def test_schedule_makes_durable_without_anyone_waiting():
    disk = SlowDisk()
    log = over(disk, durability="fsync")
    commit = GroupCommit("fsync")
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        send(log, batch())
        commit.schedule(log)
        await until(lambda: log.high_watermark == 1)
        nursery.cancel_scope.cancel()


async def test_a_failed_fsync_is_fatal_and_nobody_is_told_his_bytes_are_safe():
    disk = SlowDisk()
    log = over(disk, durability="fsync")
    commit = GroupCommit("fsync")
    told = []

    async def produce():
        info = send(log, batch())
        await commit.wait(log, info.last_offset + 1)
        told.append(info)

    async def broker():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit.run)
            nursery.start_soon(produce)

    disk.error = OSError(5, "Input/output error")
    with pytest.raises(ExceptionGroup) as caught:
        await broker()
    assert caught.group_contains(OSError, match="Input/output error")
    assert told == []
    assert log.high_watermark == 0


async def test_one_round_serves_many_logs(tmp_path):
    directory = LogDirectory.open(tmp_path / "data")
    commit = GroupCommit("fsync")
    logs = [directory.create(TP._replace(partition=n), TOPIC_ID, LogConfig()) for n in range(5)]
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        async with trio.open_nursery() as producers:
            for log in logs:
                producers.start_soon(commit.wait, log, send(log, batch()).last_offset + 1)
        assert commit.rounds == 1
        assert all(log.high_watermark == 1 for log in logs)
        nursery.cancel_scope.cancel()
    directory.close()


async def test_in_os_durability_full_segments_are_synced_so_that_recovery_is_short():
    disk = SlowDisk()
    log = over(disk, LogConfig(segment_bytes=200))
    commit = GroupCommit("os")
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        for _ in range(2):
            info = send(log, batch())
            await commit.wait(log, info.last_offset + 1)
        assert commit.rounds == 0
        for _ in range(2):
            info = send(log, batch())
            await commit.wait(log, info.last_offset + 1)
        await until(lambda: log.recovery_point >= 3)
        nursery.cancel_scope.cancel()


async def test_what_a_reader_saw_is_still_there_after_losing_everything_unsynced():
    """fsync durability: drop every byte that no fsync covered; what was visible stays."""
    disk = SlowDisk()
    log = over(disk, durability="fsync")
    commit = GroupCommit("fsync")
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        for n in range(3):
            info = send(log, batch(1, 7, 0, n))
            await commit.wait(log, info.last_offset + 1)
        seen = headers(log)
        synced = crashed(disk)
        send(log, batch(1, 7, 0, 3))
        assert headers(log) == seen
        nursery.cancel_scope.cancel()
    assert headers(over(synced)) == seen
    assert log.read(3, 1000, UNCOMMITTED).size_bytes == 0


def test_after_a_kill_the_tail_is_synced_before_readers_see_it():
    disk = SlowDisk()
    send(over(disk, durability="fsync"), batch())
    assert disk.syncs == 0
    again = over(disk, durability="fsync")
    assert disk.syncs == 1
    assert (again.high_watermark, again.recovery_point) == (1, 1)
