"""Stores in memory whose flushes wait for a gate, are counted, or fail."""

import threading

import trio
import trio.testing

from fencepost.broker.log.storage.memory import MemoryFile, MemoryStore
from fencepost.broker.log.storage.store import FlushFailed


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

    def sync_target(self):
        return self if self.exists else None

    def sync(self):
        self.disk.begun.release()
        self.disk.gate.wait(100)
        if self.disk.error:
            raise self.disk.error
        self.disk.syncs += 1


async def until(condition):
    """Let the round go on until `condition` holds; the time limit of the test is the only bound."""
    while not condition():
        await trio.lowlevel.checkpoint()


class OneBadFile(SlowDisk):
    """Syncs of the file whose place ends so fail."""

    bad = "nothing"

    def new_child(self, name):
        return OneBadFile(f"{self.place}/{name}", self.top)

    def new_file(self, name):
        file = _MayFail(f"{self.place}/{name}")
        file.disk = self.top
        return file


class _MayFail(_SlowFile):
    def sync(self):
        if self.place.endswith(self.disk.bad):
            raise FlushFailed(5, "fdatasync: Input/output error", self.place)
        super().sync()
