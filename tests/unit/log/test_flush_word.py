"""A flush that failed must be known to the next process, whose page cache would lie to it (reliability.md on fsync)."""

import errno
from pathlib import Path

import pytest

from fencepost.broker.log.directory import LogDirectory
from fencepost.broker.log.files import FileStore
from fencepost.broker.log.store import FlushFailed
from fencepost.testing.disk_faults import Fault
from fencepost.testing.disk_nodes import nothing
from fencepost.testing.sim_disk import SimDisk
from tests.unit.log.kit import DEFAULTS, TOPIC_ID, TP, batch, headers, send, settle

LOG = f"/data/{TP}/00000000000000000000.log"


def opened(disk):
    files = FileStore(Path("/data"), disk=disk)
    files.make()
    return LogDirectory.over(files, "fsync").create(TP, TOPIC_ID, DEFAULTS)


def killed_by_a_failed_flush(disk, log, full):
    """What the process leaves whose flush failed, perhaps with a full disk, to one that finds the disk well again."""
    disk.room_bytes = 0 if full else None
    disk.faults.append(Fault(0, code=errno.EIO, kinds=("fdatasync",)))
    with pytest.raises(FlushFailed):
        settle(log)
    left = disk.kill()
    left.faults.clear()
    left.room_bytes = None
    return left


@pytest.mark.parametrize("full", [False, True])
def test_what_a_failed_flush_left_in_the_cache_is_written_again_even_if_the_disk_was_full(full):
    """On a full disk no file can be made to say so; emptying one that is there takes no space."""
    disk = SimDisk()
    log = opened(disk)
    send(log, batch(2))
    settle(log)
    send(log, batch(3))
    disk = killed_by_a_failed_flush(disk, log, full)
    log = opened(disk)
    settle(log)
    assert [header.record_count for header in headers(log)] == [2, 3]
    left = opened(disk.power_cut(nothing, 0))
    assert [header.record_count for header in headers(left)] == [2, 3]
    assert left.epochs.latest == log.epochs.latest == 0
    assert bytes(disk.file(LOG).data) == bytes(disk.file(LOG).durable)


def test_the_word_is_taken_back_once_all_is_written_again():
    disk = SimDisk()
    log = opened(disk)
    send(log, batch(2))
    disk = killed_by_a_failed_flush(disk, log, full=True)
    checkpoint = f"/data/{TP}/leader-epoch-checkpoint"
    assert not disk.file(checkpoint).data
    opened(disk)
    assert disk.file(checkpoint).data
