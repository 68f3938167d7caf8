"""After a failed flush the page cache lies to the next process, which must not believe it (reliability.md on fsync)."""

import errno
from pathlib import Path

import pytest

from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.store import FlushFailed
from tests.kit.disk_faults import Fault
from tests.kit.disk_nodes import nothing
from tests.kit.sim_disk import SimDisk
from tests.unit.log.kit import DEFAULTS, TOPIC_ID, TP, batch, headers, send, settle

LOG = f"/data/{TP}/00000000000000000000.log"


def directory_on(disk, durability="fsync"):
    files = FileStore(Path("/data"), disk=disk)
    files.make()
    return LogManager.over(files, durability)


def opened(disk):
    return directory_on(disk).create(TP, TOPIC_ID, DEFAULTS)


def write_back_and_settle(log):
    """A flush as `Checkpointer` prepares it."""
    size_bytes, sync_targets = log.begin_writeback(1 << 20)
    for target in sync_targets:
        target.sync()
    log.finish_writeback(size_bytes)
    settle(log)


def killed_by_a_failed_flush(disk, log, *, full=False, at_once=False):
    """What the process leaves whose flush failed, to one that finds the disk well again.

    On a `full` disk it can make no file; killed `at_once` it can do nothing whatever any more.
    """
    disk.room_bytes = 0 if full else None
    calls = disk.io_count
    disk.faults.append(Fault(0, code=errno.EIO, kinds=("fdatasync",)))
    if at_once:
        disk.faults.append(Fault(calls + 1, code=errno.EIO))
    with pytest.raises(FlushFailed):
        settle(log)
    left = disk.kill()
    left.faults.clear()
    left.room_bytes = None
    return left


@pytest.mark.parametrize("death", [{}, {"full": True}, {"at_once": True}], ids=["well", "full disk", "killed at once"])
def test_what_a_failed_flush_left_in_the_cache_is_written_again(death):
    """No sign need be left for that: each start after a crash does it above the recovery point."""
    disk = SimDisk()
    log = opened(disk)
    send(log, batch(2))
    settle(log)
    send(log, batch(3))
    disk = killed_by_a_failed_flush(disk, log, **death)
    log = opened(disk)
    settle(log)
    assert [header.record_count for header in headers(log)] == [2, 3]
    left = opened(disk.power_cut(nothing, 0))
    assert [header.record_count for header in headers(left)] == [2, 3]
    assert left.epochs.latest == log.epochs.latest == 0
    assert bytes(disk.file(LOG).data) == bytes(disk.file(LOG).durable)


@pytest.mark.parametrize("call", ["fdatasync", "write_back"])
def test_in_os_durability_a_checkpoint_of_the_next_life_does_not_rest_on_it_either(call):
    """Or the recovery point would pass over bytes that no disk has, and a power cut damage the log below it."""
    disk = SimDisk()
    log = directory_on(disk, "os").create(TP, TOPIC_ID, DEFAULTS)
    send(log, batch(2))
    settle(log)
    send(log, batch(3))
    disk.faults.append(Fault(0, code=errno.EIO, kinds=(call,)))
    with pytest.raises(FlushFailed):
        write_back_and_settle(log)
    disk = disk.kill()
    directory = directory_on(disk, "os")
    log = directory.create(TP, TOPIC_ID, DEFAULTS)
    send(log, batch(4))
    for target in log.checkpoint():
        target.sync()
    settle(log)
    for file in directory.checkpoint_files([log]):
        file.sync()
    left = directory_on(disk.power_cut(nothing, 0), "os").create(TP, TOPIC_ID, DEFAULTS)
    assert [header.record_count for header in headers(left)] == [2, 3, 4]


def test_a_start_after_a_crash_needs_no_space():
    """What is written again stands where it stood."""
    disk = SimDisk()
    log = opened(disk)
    send(log, batch(2))
    disk = disk.kill()
    disk.room_bytes = 0
    log = opened(disk)
    assert [header.record_count for header in headers(log)] == [2]
