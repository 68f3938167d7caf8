"""A system that lacks descriptors or memory for a while: nothing was tried, nothing is lost, the same is done again.

Kafka takes such a log directory offline (LogDirFailureChannel), and there a restart is the way back.
"""

import errno
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from fencepost.broker.log.compaction.cleaner import CleanerSettings, LogCleaner
from fencepost.broker.log.durability.checkpointing import Checkpointer
from fencepost.broker.log.durability.flusher import Durability, LogFlusher
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.storage.descriptor_pool import DescriptorPool
from fencepost.broker.log.storage.files import FileStore
from tests.kit.disk_faults import Fault
from tests.kit.disk_nodes import nothing
from tests.kit.sim_disk import SimDisk
from tests.kit.sim_flush import SimFlushes
from tests.unit.log.compaction_kit import COMPACT, put, seen
from tests.unit.log.kit import NOW_MS, SMALL, TOPIC_ID, TP, batch, headers, send

ROUNDS, BATCHES, BATCH_RECORDS = 3, 6, 20
OPENS = ("open", "create")


def directory_on(disk: SimDisk, descriptors: int = 1, durability: Durability = "fsync") -> LogManager:
    """With one descriptor for all files nearly every access opens its file again."""
    files = FileStore(Path("/data"), DescriptorPool(descriptors), disk=disk)
    files.make()
    return LogManager.over(files, durability)


async def written_and_cut_off(disk: SimDisk, fault: Fault | None) -> tuple[list[int], bool]:
    """Several rounds of batches over several segments, and after each acknowledgement a power cut of a copy.

    Returns the base offsets that were acknowledged and are gone in one of the copies, and whether the log went offline.
    """
    log = directory_on(disk).create(TP, TOPIC_ID, SMALL)
    commit = LogFlusher("fsync", lambda lost, error: None, SimFlushes(lambda: 0.001))
    if fault is not None:
        fault.first += disk.io_count
        fault.stop += disk.io_count
        disk.faults.append(fault)
    acknowledged: list[int] = []
    gone: set[int] = set()
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        for _ in range(ROUNDS):
            tickets = [send(log, batch(BATCH_RECORDS)) for _ in range(BATCHES)]
            with trio.fail_after(3600):
                for ticket in tickets:
                    if not ticket.error:  # an append that cannot open its file is refused, and clients send it again
                        await commit.wait(ticket)
                        acknowledged.append(ticket.base_offset)
            left = directory_on(disk.power_cut(nothing)).create(TP, TOPIC_ID, SMALL)
            gone |= set(acknowledged) - {header.base_offset for header in headers(left)}
        nursery.cancel_scope.cancel()
    return sorted(gone), log.offline


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM], ids=["descriptors", "memory"])
async def test_a_shortage_at_any_moment_loses_nothing_and_takes_no_log_offline(
    code: int, autojump_clock: MockClock
) -> None:
    whole = SimDisk()
    assert await written_and_cut_off(whole, None) == ([], False)
    wrong = {}
    for first in range(whole.io_count):
        outcome = await written_and_cut_off(SimDisk(), fault := Fault(first, first + 3, code, OPENS))
        if outcome != ([], False):
            wrong[first] = outcome, fault.hits
    assert wrong == {}


@pytest.mark.parametrize(("descriptors", "batches"), [(1, BATCHES), (100, 1)], ids=["of files", "of directories"])
async def test_what_could_not_be_flushed_is_not_visible_until_it_is(
    descriptors: int, batches: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimDisk()
    log = directory_on(disk, descriptors).create(TP, TOPIC_ID, SMALL)
    commit = LogFlusher("fsync", lambda lost, error: None, SimFlushes(lambda: 0.001))
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        tickets = [send(log, batch(BATCH_RECORDS)) for _ in range(batches)]
        shortage = Fault(0, code=errno.EMFILE, kinds=OPENS)
        disk.faults.append(shortage)
        with trio.move_on_after(60):
            await commit.wait(tickets[-1])
        assert (log.high_watermark, log.offline) == (0, False)
        assert f"1 logs not flushed, the broker tries again; one: partition={TP} cause=" in caplog.text
        disk.faults.remove(shortage)
        await commit.wait(tickets[-1])
        assert log.high_watermark == batches * BATCH_RECORDS
        nursery.cancel_scope.cancel()


async def test_segments_of_an_earlier_run_are_flushed_after_the_shortage(autojump_clock: MockClock) -> None:
    """Their files are opened in the threads of the flush."""
    disk = SimDisk()
    before = directory_on(disk, durability="os").create(TP, TOPIC_ID, SMALL)
    for _ in range(ROUNDS * BATCHES):
        send(before, batch(BATCH_RECORDS))
    disk = disk.kill()
    log = directory_on(disk, 100).create(TP, TOPIC_ID, SMALL)
    commit = LogFlusher("fsync", lambda lost, error: None, SimFlushes(lambda: 0.001))
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        ticket = send(log, batch())
        shortage = Fault(disk.io_count, code=errno.EMFILE, kinds=OPENS)
        disk.faults.append(shortage)
        with trio.move_on_after(1):
            await commit.wait(ticket)
        assert shortage.hits > 0
        disk.faults.remove(shortage)
        synced: set[str] = set()
        disk.before_io = lambda kind, path: synced.add(path) if kind == "fdatasync" else None
        await commit.wait(ticket)
        nursery.cancel_scope.cancel()
    assert log.recovery_point == log.log_end_offset
    names = [name for name in disk.file_names(f"/data/{TP}") if name.endswith(".log")]
    assert len(names) > 1
    assert {f"/data/{TP}/{name}" for name in names} <= synced


async def test_many_logs_wait_for_one_pause_and_one_line_of_the_log(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimDisk()
    directory = directory_on(disk, 100)
    logs = [directory.create(TP._replace(partition=number), TOPIC_ID, SMALL) for number in range(40)]
    commit = LogFlusher("fsync", lambda lost, error: None, SimFlushes(lambda: 0.001))
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        tickets = [send(log, batch()) for log in logs]
        shortage = Fault(0, code=errno.EMFILE, kinds=OPENS)
        disk.faults.append(shortage)
        began = trio.current_time()
        with trio.move_on_after(5):
            await commit.wait_all(tickets)
        assert len([one for one in caplog.records if "not flushed" in one.getMessage()]) <= 11
        disk.faults.remove(shortage)
        assert not await commit.wait_all(tickets)
        assert trio.current_time() - began < 6
        nursery.cancel_scope.cancel()


async def test_a_checkpoint_that_could_not_open_a_file_is_taken_the_next_time(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No recovery point may rise before what it covers is durable."""
    disk = SimDisk()
    directory = directory_on(disk, 100, durability="os")
    log = directory.create(TP, TOPIC_ID, SMALL)
    monkeypatch.setattr(log.pace, "due", lambda seconds: True)
    commit = LogFlusher("os", lambda lost, error: None, SimFlushes(lambda: 0.001))
    checkpointer = Checkpointer(directory, commit, lambda: 1.0, SimFlushes(lambda: 0.001))
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        send(log, batch(3))
        shortage = Fault(0, code=errno.ENFILE, kinds=OPENS, path_part=f"/data/{TP}")

        def from_the_sync_on(kind: str, path: str) -> None:
            if kind == "fdatasync" and path.endswith("index"):
                disk.before_io = None
                disk.faults.append(shortage)

        disk.before_io = from_the_sync_on
        await checkpointer.run_once()
        assert (shortage.hits > 0, log.offline) == (True, False)
        assert "Too many open files" in log.failed_upkeep["checkpoint"]
        assert directory.kept.recovery_points.get(TP, 0) == 0
        disk.faults.remove(shortage)
        await checkpointer.run_once()
        assert (directory.kept.recovery_points[TP], log.failed_upkeep) == (3, {})
        nursery.cancel_scope.cancel()


async def test_compaction_that_could_not_open_a_file_is_repeated() -> None:
    """Any other error marks the log as uncleanable until a restart, as in Kafka (LogCleaner.cleanLog)."""
    disk = SimDisk()
    directory = directory_on(disk, durability="os")
    log = directory.create(TP, TOPIC_ID, COMPACT)
    for number in range(60):
        put(log, ("k", str(number)))
    log.roll(NOW_MS)
    shortage = Fault(0, code=errno.EMFILE, kinds=("create",))
    disk.faults.append(shortage)
    cleaner = LogCleaner(directory, lambda: CleanerSettings(backoff_ms=1), lambda: NOW_MS)
    while await cleaner.clean_dirtiest():
        await trio.lowlevel.checkpoint()
    assert (shortage.hits > 0, cleaner.uncleanable()) == (True, {})
    disk.faults.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cleaner.run)
        with trio.fail_after(60):
            while not directory.kept.cleaned_to.get(TP):
                await trio.lowlevel.checkpoint()
        assert seen(log) == {"k": "59"}
        nursery.cancel_scope.cancel()
