"""Group commit: who waits for which round (performance.md, structure 3; reliability.md on fsync)."""

import gc
import weakref

import pytest
import trio
import trio.testing

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability import flusher as commit_module
from fencepost.broker.log.durability.flusher import LogFlusher, LogOffline
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.reading import read_batches
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.checkpoints import RECOVERY_POINTS, decode_offsets
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import FlushFailed
from fencepost.protocol.errors import ErrorCode
from tests.kit.slow_disk import OneBadFile, SlowDisk, until
from tests.kit.trimming import delete_records
from tests.unit.log.kit import TOPIC_ID, TP, UNCOMMITTED, batch, crashed, directory_over, headers, over, running, send


async def test_wait_returns_when_durable_and_not_before():
    disk = SlowDisk()
    log = over(disk, durability="fsync")
    commit = LogFlusher("fsync")
    async with running(commit):
        info = send(log, batch())
        assert log.high_watermark == 0
        await commit.wait(info)
        assert log.high_watermark == log.recovery_point == 1
        assert disk.syncs == 1


async def test_a_throttled_writer_of_a_deleted_log_is_let_go(monkeypatch):
    """No round takes the bytes of a deleted log any more, so a writer that waited for that would wait for ever."""
    monkeypatch.setattr(commit_module, "BACKLOG_BYTES", 100)
    logs = directory_over(SlowDisk(), "fsync")
    log = logs.create(TP, TOPIC_ID, LogConfig())
    commit = LogFlusher("fsync")
    async with running(commit):
        send(log, batch(count=10))
        assert commit.over_backlog([log])
        logs.delete(TP)
        with trio.fail_after(5):
            await commit.throttle([log])


async def test_who_asks_during_a_round_waits_for_the_next_and_rounds_are_shared():
    disk = SlowDisk()
    log = over(disk, durability="fsync")
    commit = LogFlusher("fsync")
    done = []

    async def produce(name):
        info = send(log, batch())
        await commit.wait(info)
        done.append(name)

    async with running(commit) as nursery:
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


async def test_who_asks_during_the_round_that_has_his_bytes_waits_for_no_other():
    """Appended and requested before the round began, as the markers and the decision of EndTxn are (decision 0080)."""
    disk = SlowDisk()
    log = over(disk, durability="fsync")
    commit = LogFlusher("fsync")
    async with running(commit) as nursery:
        disk.gate.clear()
        early = send(log, batch())
        commit.schedule(log)
        await trio.to_thread.run_sync(disk.begun.acquire)
        late = send(log, batch())
        nursery.start_soon(commit.wait, early)
        await trio.testing.wait_all_tasks_blocked()
        disk.gate.set()
        await until(lambda: early.is_settled)
        await trio.testing.wait_all_tasks_blocked()
        assert (commit.rounds, late.is_settled) == (1, False)
        await commit.wait(late)
        assert commit.rounds == 2


async def test_wait_does_not_yield_when_already_durable():
    log = over(MemoryStore(), durability="os")
    commit = LogFlusher("os")
    info = send(log, batch())
    with trio.testing.assert_no_checkpoints():
        await commit.wait(info)


async def test_schedule_makes_durable_without_anyone_waiting():
    disk = SlowDisk()
    log = over(disk, durability="fsync")
    commit = LogFlusher("fsync")
    async with running(commit):
        send(log, batch())
        commit.schedule(log)
        await until(lambda: log.high_watermark == 1)


async def test_between_rounds_a_log_that_was_flushed_is_not_kept_alive():
    """A topic may be deleted then: nothing but the directory may refer to its logs."""
    log = over(MemoryStore(), durability="fsync")
    commit = LogFlusher("fsync")
    async with running(commit):
        info = send(log, batch())
        await commit.wait(info)
        await trio.testing.wait_all_tasks_blocked()
        gone = weakref.ref(log)
        del log, info
        gc.collect()
        assert gone() is None


async def test_a_failed_fsync_is_fatal_and_no_bytes_are_called_safe():
    disk = SlowDisk()
    log = over(disk, durability="fsync")
    commit = LogFlusher("fsync")
    told = []

    async def produce():
        info = send(log, batch())
        await commit.wait(info)
        told.append(info)

    async def broker():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit.run)
            nursery.start_soon(produce)

    disk.error = FlushFailed(5, "Input/output error")
    with pytest.raises(ExceptionGroup) as caught:
        await broker()
    assert caught.group_contains(OSError, match="Input/output error")
    assert told == []
    assert log.high_watermark == 0


async def test_one_round_serves_many_logs(tmp_path):
    directory = LogManager.open(tmp_path / "data")
    commit = LogFlusher("fsync")
    logs = [directory.create(TP._replace(partition=n), TOPIC_ID, LogConfig()) for n in range(5)]
    async with running(commit):
        async with trio.open_nursery() as producers:
            for log in logs:
                producers.start_soon(commit.wait, send(log, batch()))
        assert commit.rounds == 1
        assert all(log.high_watermark == 1 for log in logs)
    directory.close()


async def test_what_a_reader_saw_is_still_there_after_losing_everything_unsynced():
    """fsync durability: drop every byte that no fsync covered; what was visible stays."""
    disk = SlowDisk()
    log = over(disk, durability="fsync")
    commit = LogFlusher("fsync")
    async with running(commit):
        for n in range(3):
            info = send(log, batch(1, 7, 0, n))
            await commit.wait(info)
        seen = headers(log)
        synced = crashed(disk)
        send(log, batch(1, 7, 0, 3))
        assert headers(log) == seen
    assert headers(over(synced)) == seen
    assert read_batches(log, 3, 1000, UNCOMMITTED).size_bytes == 0


def test_after_a_kill_the_tail_is_synced_before_readers_see_it():
    disk = SlowDisk()
    send(over(disk, durability="fsync"), batch())
    assert disk.syncs == 0
    again = over(disk, durability="fsync")
    assert disk.syncs == 1
    assert (again.high_watermark, again.recovery_point) == (1, 1)


def three_logs(disk):
    directory = directory_over(disk, "fsync")
    return directory, [directory.create(TP._replace(partition=n), TOPIC_ID, LogConfig()) for n in range(3)]


async def test_only_the_log_of_the_failed_file_goes_offline_where_somebody_is_told():
    """Nobody who waited for it is acknowledged, its bounds stay, and no recovery point of it is written again."""
    disk = OneBadFile()
    directory, logs = three_logs(disk)
    told = []
    commit = LogFlusher("fsync", lambda log, error: told.append((log, error.filename)))
    async with running(commit):
        for log in logs:
            await commit.wait(send(log, batch()))
        disk.bad = "events-1/00000000000000000000.log"
        ends = [send(log, batch()).last_offset + 1 for log in logs]
        for log in logs:
            commit.schedule(log)
        with pytest.raises(LogOffline, match="events-1"):
            await commit.wait(Ticket(logs[1], ends[1]))
        await commit.wait(Ticket(logs[0], ends[0]))
        await commit.wait(Ticket(logs[2], ends[2]))
        disk.bad = "nothing"
        assert told == [(logs[1], f"{logs[1].store.place}/00000000000000000000.log")]
        assert [log.offline for log in logs] == [False, True, False]
        assert (logs[1].high_watermark, logs[1].log_end_offset, logs[1].recovery_point) == (1, 2, 1)
        assert len(headers(logs[1])) == 1
        assert send(logs[1], batch()).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert delete_records(logs[1], 1)[0] is ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(LogOffline):
            await commit.wait(Ticket(logs[1], ends[1]))
    directory.close()
    again = directory_over(crashed(disk), "fsync")
    assert not again.clean, "a log that is offline is never closed as clean"
    points = decode_offsets(disk.load(RECOVERY_POINTS), "here")
    assert points == {TP: 2, TP._replace(partition=2): 2}, "none is written for it any more"
    assert len(headers(again.create(TP._replace(partition=1), TOPIC_ID, LogConfig()))) == 2, "recovery had a look"


async def test_a_failure_that_is_no_log_s_own_ends_the_process_in_any_case():
    disk = OneBadFile()
    _, logs = three_logs(disk)
    commit = LogFlusher("fsync", lambda log, error: None)

    class Root:
        def sync(self):
            raise FlushFailed(5, "fsync of the directory: Input/output error", "slow:")

    logs[0].begin_sync = lambda reserve: (1, [Root()])
    send(logs[0], batch())
    commit.schedule(logs[0])
    with pytest.raises(FlushFailed, match="directory"):
        await commit.run()


async def test_whoever_no_cancellation_reaches_is_woken_when_the_rounds_end():
    """A change of the metadata waits in a shielded scope: the process could not end while it waited for ever."""
    disk = SlowDisk()
    log = over(disk, durability="fsync")
    commit = LogFlusher("fsync")
    disk.error = FlushFailed(5, "Input/output error")
    refused = []

    async def shielded():
        with trio.CancelScope(shield=True):
            try:
                await commit.wait(send(log, batch()))
            except LogOffline as error:
                refused.append(error)

    async def broker():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit.run)
            nursery.start_soon(shielded)

    with pytest.raises(ExceptionGroup):
        await broker()
    assert len(refused) == 1
    assert log.high_watermark == 0


async def test_writers_with_acks_1_wait_when_the_disk_falls_behind(monkeypatch):
    """Or the kernel would stop the event loop in the middle of a write, when too much of its memory is dirty."""
    monkeypatch.setattr(commit_module, "BACKLOG_BYTES", 600)
    disk = SlowDisk()
    log = over(disk, durability="fsync")
    commit = LogFlusher("fsync")
    async with running(commit):
        disk.gate.clear()

        async def write():
            while True:
                send(log, batch())
                commit.schedule(log)
                if commit.over_backlog([log]):
                    await commit.throttle([log])
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as writer:
            writer.start_soon(write)
            await until(lambda: log.unflushed_bytes > 600)
            await trio.sleep(0.1)  # it would write on and on
            writer.cancel_scope.cancel()
        assert 600 < log.unflushed_bytes < 900
        disk.gate.set()
        await commit.throttle([log])
        assert log.unflushed_bytes <= 600
