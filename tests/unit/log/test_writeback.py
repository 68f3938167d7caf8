"""Large writes and flushes go in pieces, and nothing of what a log promises changes by that (row L2, decision 44)."""

import ctypes
import errno
import os
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from fencepost.broker.log.durability.writeback import STEP_BYTES, Writeback
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.storage import disk_file
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.staged import PIECE_BYTES
from fencepost.broker.log.storage.store import FlushFailed
from fencepost.protocol.errors import ErrorCode
from tests.kit.disk_faults import Fault
from tests.kit.disk_nodes import nothing
from tests.kit.sim_disk import SimDisk
from tests.unit.log.kit import DEFAULTS, TOPIC_ID, TP, batch, headers, send, settle

LOG = f"/data/{TP}/00000000000000000000.log"
LARGE = bytes(3 * PIECE_BYTES + 1000)
"""The value of a batch that takes four writes."""
WRITE, WRITE_AND_WAIT = 2, 7
"""Flags of sync_file_range."""


def opened(disk, durability="fsync"):
    files = FileStore(Path("/data"), disk=disk)
    files.make()
    return LogManager.over(files, durability).create(TP, TOPIC_ID, DEFAULTS)


def calls_on_the_log(disk):
    """The kinds of calls that meet the log's file from now on."""
    kinds = []
    disk.before_io = lambda kind, path: kinds.append(kind) if path == LOG else None
    return kinds


def test_a_large_batch_is_written_in_pieces():
    disk = SimDisk()
    log = opened(disk)
    send(log, batch())
    kinds = calls_on_the_log(disk)
    before = log.segments.size_bytes
    data = batch(value=LARGE)
    assert send(log, data).base_offset == 1
    assert kinds == ["pwrite"] * 4
    assert bytes(disk.file(LOG).data[before:]) == bytes(data)


@pytest.mark.parametrize("piece", range(4))
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_batch_whose_piece_fails_leaves_nothing_behind(piece, code):
    """ENOSPC and EIO answer KAFKA_STORAGE_ERROR, and the log is what it was: also behind the first piece."""
    disk = SimDisk()
    log = opened(disk)
    send(log, batch(2))
    before = bytes(disk.file(LOG).data)
    disk.faults.append(Fault(disk.io_count + piece, disk.io_count + piece + 1, code, ("pwrite",)))
    assert send(log, batch(value=LARGE)).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.faults[0].hits == 1
    assert bytes(disk.file(LOG).data) == before
    assert send(log, batch(3)).base_offset == 2
    settle(log)
    assert [header.record_count for header in headers(log)] == [2, 3]


def test_a_batch_that_is_half_there_after_a_kill_is_cut_off():
    """Between any two pieces the process may be killed: what was acknowledged is there, the torn batch is not."""
    disk = SimDisk()
    log = opened(disk)
    send(log, batch(2))
    settle(log)
    left = []
    disk.before_io = lambda kind, path: left.append(disk.kill()) if kind == "pwrite" and path == LOG else None
    send(log, batch(value=LARGE))
    disk.before_io = None
    assert len(left) == 4
    for found in left:
        again = opened(found)
        settle(again)
        assert [header.record_count for header in headers(again)] == [2]
        assert send(again, batch(3)).base_offset == 2


def test_much_goes_on_its_way_before_the_flush_and_little_does_not(monkeypatch):
    monkeypatch.setattr(disk_file, "LARGE_BYTES", 1000)
    disk = SimDisk()
    log = opened(disk)
    send(log, batch())
    settle(log)
    kinds = calls_on_the_log(disk)
    send(log, batch(value=bytes(2000)))
    settle(log)
    assert kinds == ["pwrite", "write_back", "fdatasync"]
    kinds.clear()
    send(log, batch())
    settle(log)
    assert kinds == ["pwrite", "fdatasync"]


def test_what_is_on_its_way_is_not_durable(monkeypatch):
    """Only the flush makes it so: the high watermark waits for that."""
    monkeypatch.setattr(disk_file, "LARGE_BYTES", 1000)
    disk = SimDisk()
    log = opened(disk)
    send(log, batch(value=bytes(2000)))
    _, sync_targets = log.begin_sync()
    disk.faults.append(Fault(0, kinds=("fdatasync",)))
    with pytest.raises(FlushFailed):
        sync_targets[0].sync()
    assert log.high_watermark == 0
    assert not headers(opened(disk.power_cut(nothing)))


def test_a_failure_on_the_way_is_a_failed_flush(monkeypatch):
    """The kernel may have dropped those pages: a flush afterwards would succeed and lie, so there is none."""
    monkeypatch.setattr(disk_file, "LARGE_BYTES", 1000)
    disk = SimDisk()
    log = opened(disk)
    send(log, batch(value=bytes(2000)))
    _, sync_targets = log.begin_sync()
    disk.faults.append(Fault.once(disk.io_count))
    kinds = calls_on_the_log(disk)
    with pytest.raises(FlushFailed, match="sync_file_range: Input/output error") as failure:
        sync_targets[0].sync()
    assert failure.value.filename == LOG
    assert kinds == ["write_back"]


# The disk of this machine


class Range:
    """Stands in for the system's sync_file_range and notes how it is called."""

    def __init__(self, code=0, at=0, seconds=0.0):
        self.calls = []
        self.seconds = seconds
        """How long the disk takes: meanwhile other threads run."""
        self.code = code
        self.at = at
        """From this call on it fails with `code`, if that is not 0."""

    def __call__(self, fd, position, length, flags):
        self.calls.append((fd, position, length, flags))
        time.sleep(self.seconds)
        if self.code and len(self.calls) > self.at:
            ctypes.set_errno(self.code)
            return -1
        return 0


def test_at_most_two_steps_are_on_their_way():
    """A step begins, and only then the one before it is waited for: the disk is never idle, and its queue is short."""
    range_ = Range()
    Writeback(range_)(7, 100, 100 + 2 * STEP_BYTES + 5)
    first, second, third = (100, STEP_BYTES), (100 + STEP_BYTES, STEP_BYTES), (100 + 2 * STEP_BYTES, 5)
    assert range_.calls == [
        (7, *first, WRITE),
        (7, *second, WRITE),
        (7, *first, WRITE_AND_WAIT),
        (7, *third, WRITE),
        (7, *second, WRITE_AND_WAIT),
    ]


@pytest.mark.parametrize("at", range(4))
def test_an_error_of_any_step_is_told(at):
    range_ = Range(errno.EIO, at)
    with pytest.raises(OSError, match="Input/output error") as failure:
        Writeback(range_)(7, 0, 3 * STEP_BYTES)
    assert failure.value.errno == errno.EIO
    assert len(range_.calls) == at + 1


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EINVAL, errno.EPERM])
def test_where_the_system_does_not_know_it_the_flush_does_it_all(code):
    range_ = Range(code)
    writeback = Writeback(range_)
    writeback(7, 0, 3 * STEP_BYTES)
    writeback(7, 0, 3 * STEP_BYTES)
    assert len(range_.calls) == 1, "nor is it asked again"


def test_files_take_turns():
    """Else eight partitions would have eight times as much on its way."""
    range_ = Range(seconds=0.0005)
    writeback = Writeback(range_)
    threads = [threading.Thread(target=writeback, args=(fd, 0, 10 * STEP_BYTES)) for fd in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    order = [fd for fd, *_ in range_.calls]
    assert sorted(set(order)) == list(range(8))
    assert sum(one != other for one, other in pairwise(order)) == 7


def test_the_system_is_truly_asked(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(3 * STEP_BYTES))
    writeback = Writeback()
    with path.open("r+b") as file:
        before = path.read_bytes()
        writeback(file.fileno(), 0, 3 * STEP_BYTES)
        assert path.read_bytes() == before
        closed = os.dup(file.fileno())
    os.close(closed)
    if writeback.is_known:
        with pytest.raises(OSError, match="Bad file descriptor"):
            writeback(closed, 0, 3 * STEP_BYTES)
