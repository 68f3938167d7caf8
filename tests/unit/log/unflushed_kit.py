"""Logs on a real disk that is watched, with writebacks of a few batches each: for the tests of os durability."""

import threading

from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.storage.disk import SystemDisk
from fencepost.broker.log.storage.files import DescriptorPool, FileStore
from tests.unit.log.kit import TP, batch, send

OTHER = TP._replace(partition=1)


WRITEBACK, MAX = 500, 2000


class Watched(SystemDisk):
    """The real disk; it tells what was written back and flushed, and waits at a gate."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.gate = threading.Event()
        self.gate.set()
        self.error = None
        self.write_back = self._write_back
        fdatasync = self.fdatasync
        self.fdatasync = lambda fd: (self.calls.append("fdatasync"), fdatasync(fd))

    def _write_back(self, fd, start, stop):
        self.gate.wait(100)
        if self.error is not None:
            raise self.error
        self.calls.append((start, stop))

    @property
    def ranges(self):
        """What was written back, in order."""
        return [call for call in self.calls if call != "fdatasync"]


def logs_on(disk, path, durability="os"):
    path.mkdir(exist_ok=True)
    return LogManager.over(FileStore(path, DescriptorPool(100), disk=disk), durability)


def write(commit, log, size_bytes):
    """Append until the log holds so much more, as one who takes each answer at once."""
    stop = log.segments.written_bytes + size_bytes
    while log.segments.written_bytes < stop:
        info = send(log, batch())
        assert not info.error
        commit.is_settled(info)
