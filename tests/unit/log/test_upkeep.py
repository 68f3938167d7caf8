"""What takes its time is left to threads: freeing space, snapshots of very many producers, syncs of the upkeep."""

import errno
import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from fencepost.broker.log.durability.checkpointing import Checkpointer
from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.broker.log.durability.sync_threads import Failure, SyncThreads
from fencepost.broker.log.durability.upkeep import at_once, in_threads
from fencepost.broker.log.housekeeping import housekeep
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.recovery import snapshot_files
from fencepost.broker.log.storage.store import SyncTask
from fencepost.broker.log.trimming import deleting_records
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.disk_faults import Fault
from tests.kit.disk_nodes import nothing
from tests.kit.sim_disk import SimDisk
from tests.kit.trimming import delete_records
from tests.unit.log.kit import NOW_MS, SMALL, TOPIC_ID, TP, batch, send
from tests.unit.log.upkeep_kit import TINY, files_of, opened, written


def test_deleted_segments_lose_their_names_at_once_and_their_bytes_in_the_chores():
    """L3: on a disk that discards, freeing a segment of 1 GiB takes longer than the event loop may rest."""
    disk = SimDisk()
    directory, log = written(disk)
    before = disk.counts["unlink"]
    assert delete_records(log, 9)[0] is ErrorCode.NONE
    assert disk.counts["unlink"] == before
    assert log.segments.first_offset > 0
    assert min(files_of(disk, ".log")).startswith(f"{log.segments.first_offset:020d}")
    assert files_of(disk, ".deleted")
    for chore in directory.background_tasks():
        chore.sync()
    assert not files_of(disk, ".deleted")
    assert directory.background_tasks() == []


def test_a_disk_too_full_for_a_new_name_is_freed_on_the_spot():
    """Retention is what makes room: it must not need some."""
    disk = SimDisk()
    _, log = written(disk)
    disk.faults.append(Fault(0, code=errno.ENOSPC, kinds=("rename",), path_part=str(TP)))
    assert delete_records(log, 9) == (ErrorCode.NONE, 9)
    assert log.segments.first_offset > 0
    assert min(files_of(disk, ".log")).startswith(f"{log.segments.first_offset:020d}")


def test_the_next_start_clears_away_what_was_left():
    disk = SimDisk()
    _, log = written(disk)
    delete_records(log, 9)
    after = disk.kill()
    again = opened(after).create(TP, TOPIC_ID, TINY)
    assert (again.log_start_offset, again.log_end_offset) == (9, 12)
    assert not files_of(after, ".deleted")


def test_a_topic_with_the_longest_name_can_be_deleted(tmp_path):
    """Its directory's new name keeps within 255 characters; twice in a row they do not meet."""
    directory = LogManager.open(tmp_path / "data")
    longest = TopicPartition("t" * 249, 12)
    for _ in range(2):
        send(directory.create(longest, TOPIC_ID, SMALL), batch())
        directory.delete(longest)
    assert len([path for path in (tmp_path / "data").iterdir() if path.name.endswith("-delete")]) == 2
    directory.close()
    assert not [path for path in (tmp_path / "data").iterdir() if path.is_dir()]


@pytest.fixture
def few_at_once(monkeypatch):
    """Three producers count as very many."""
    monkeypatch.setattr(snapshot_files, "AT_ONCE_MAX", 2)


def test_a_snapshot_of_very_many_producers_is_left_to_the_chores(few_at_once):
    """P9: a hundred thousand take a third of a second to encode. Until it is written, nothing counts on it."""
    disk = SimDisk()
    directory, log = written(disk)
    bases = [segment.base_offset for segment in log.segments][1:]
    assert not log.snapshots.has(bases[-1])
    for chore in directory.background_tasks():
        chore.sync()
    assert all(log.snapshots.has(base) for base in bases)
    expected = sorted(log.producers.entries())
    again = opened(disk.kill()).create(TP, TOPIC_ID, TINY)
    assert sorted(again.producers.entries()) == expected


def test_a_checkpoint_and_a_clean_stop_take_it_along(few_at_once):
    disk = SimDisk()
    directory, log = written(disk)
    for target in log.checkpoint() or ():
        target.sync()
    assert log.snapshots.has(log.log_end_offset)
    send(log, batch(producer_id=99, epoch=0, sequence=0))
    directory.close()
    assert f"{log.log_end_offset:020d}.snapshot" in files_of(disk, ".snapshot")


def test_a_late_snapshot_never_comes_into_a_new_log_of_the_name(few_at_once):
    disk = SimDisk()
    directory, _ = written(disk)
    directory.delete(TP)
    send(directory.create(TP, b"\x07" * 16, SMALL), batch())
    for chore in directory.background_tasks():
        chore.sync()
    assert not files_of(disk, ".snapshot")


def test_a_full_disk_costs_a_late_snapshot_and_nothing_else(few_at_once):
    disk = SimDisk()
    directory, log = written(disk)
    disk.room_bytes = 0
    for chore in directory.background_tasks():
        chore.sync()
    assert not files_of(disk, ".snapshot")
    disk.room_bytes = None
    assert delete_records(log, 9) == (ErrorCode.NONE, 9)
    assert log.segments.first_offset == 0, "what producers did there stands nowhere else"


class Watched:
    """Threads that remember in which one a disk waited."""

    def __init__(self, disk: SimDisk) -> None:
        self.names: set[str] = set()
        self._threads = SyncThreads(helpers_max=0)
        disk.before_io = self._note

    def _note(self, kind: str, path: str) -> None:
        if kind in ("fsync", "fdatasync", "unlink"):
            self.names.add(threading.current_thread().name)

    def is_brief(self, count: int, size_bytes: int) -> bool:
        return False

    def sync_inline(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        return self._threads.sync_inline(sync_targets)

    async def sync(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        return await self._threads.sync(sync_targets)

    def close(self) -> None:
        self._threads.close()


async def test_the_broker_waits_for_no_disk_in_its_upkeep(few_at_once):
    """DeleteRecords, retention and checkpoints: every sync and every unlink happens in the thread."""
    disk = SimDisk()
    directory, log = written(disk)
    threads = Watched(disk)
    checkpointer = Checkpointer(directory, LogFlusher("fsync", None, threads), count(step=120.0).__next__, threads)
    await checkpointer.run_once()
    assert await in_threads(deleting_records(log, 5), threads) == (ErrorCode.NONE, 5)
    log.config = replace(TINY, retention_bytes=300, retention_ms=-1)
    await housekeep(directory, NOW_MS, threads)
    assert log.log_start_offset > 5
    await checkpointer.run_once()
    directory.delete(TP)
    for _ in range(2):  # what was deleted keeps its bytes for a minute
        await checkpointer.run_once()
    threads.close()
    assert threads.names == {"fencepost-sync"}
    assert not [name for name in disk.root.entries["data"].entries if name.startswith(TP.topic)]  # type: ignore[union-attr]


async def test_what_fails_in_the_thread_is_raised_in_the_work():
    """DeleteRecords answers KAFKA_STORAGE_ERROR; a log whose flush failed takes nothing more."""
    for code, offline in ((errno.EIO, True), (errno.ENOSPC, False)):
        disk = SimDisk()
        _, log = written(disk)
        kinds = ("fdatasync",) if offline else ("create",)
        disk.faults.append(Fault(0, code=code, kinds=kinds))
        threads = SyncThreads(helpers_max=0)
        assert (await in_threads(deleting_records(log, 9), threads))[0] is ErrorCode.KAFKA_STORAGE_ERROR
        threads.close()
        assert log.offline is offline


def test_a_failed_write_of_the_file_of_all_log_starts_takes_no_log_offline():
    """It is of no log: a retry writes a whole new file, as retention does."""
    disk = SimDisk()
    _, log = written(disk)
    disk.faults.append(Fault(0, kinds=("fsync",)))
    assert delete_records(log, 9)[0] is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.offline
    disk.faults.clear()
    assert delete_records(log, 9) == (ErrorCode.NONE, 9)
    assert opened(disk.power_cut(nothing)).create(TP, TOPIC_ID, TINY).log_start_offset == 9


def test_two_deletions_at_a_time_leave_what_the_further_one_said():
    """The second begins while the first waits for the disk; neither answers before its start is durable."""
    disk = SimDisk()
    _, log = written(disk)
    first = deleting_records(log, 4)
    waiting = next(first)
    assert waiting, "the first is on its way to the disk"
    assert at_once(deleting_records(log, 9)) == (ErrorCode.NONE, 9)
    for target in waiting:
        target.sync()  # late, it must not put the older start in place again
    assert at_once(first) == (ErrorCode.NONE, 9)
    after = opened(disk.kill())
    assert after.create(TP, TOPIC_ID, TINY).log_start_offset == 9


def test_a_lower_deletion_answers_only_when_the_start_is_durable():
    """Its answer is the log's start: that the other one's is still under way must not make it a promise too early."""
    _, log = written(SimDisk())
    assert next(deleting_records(log, 9))
    lower = deleting_records(log, 4)
    assert next(lower), "it waits, too"
