"""Group commit: one round of fdatasync in a thread makes durable what everybody waits for."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Literal, NoReturn

import trio

from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.store import Syncable
from fencepost.broker.log.sync_thread import SyncThread

Durability = Literal["fsync", "os"]

logger = logging.getLogger(__name__)


class _Round:
    """Everybody who asked since the last round began."""

    def __init__(self) -> None:
        self.logs: dict[PartitionLog, None] = {}
        self.done = trio.Event()


class GroupCommit:
    """Makes logs durable, in `fsync` before the answer, in `os` only the segments that are full.

    One round runs at a time; who asks while it runs waits for the next, because only that one surely covers his bytes.
    """

    def __init__(self, durability: Durability) -> None:
        self.durability: Durability = durability
        self.rounds = 0
        """Rounds finished so far."""
        self.sync_seconds = 0.0
        """Time spent in them, waiting for the disk."""
        self._next = _Round()
        self._asked = trio.Event()
        self._thread = SyncThread()

    async def wait(self, log: PartitionLog, end_offset: int) -> None:
        """Return when everything of `log` below `end_offset` is durable; without a checkpoint if it already is."""
        while log.high_watermark < end_offset:
            waited = self._enlist(log)
            await waited.done.wait()
        if log.segments.sealed_unsynced:
            self._enlist(log)

    def schedule(self, log: PartitionLog) -> None:
        """Have the log made durable soon, without waiting (acks=0 and acks=1)."""
        if log.high_watermark < log.log_end_offset or log.segments.sealed_unsynced:
            self._enlist(log)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Do the rounds until cancelled.

        A failed fsync leaves this task as OSError and must end the process: the kernel may have dropped the bytes it
        could not write, and a second try would succeed and lie. Nobody who waited is told that his bytes are safe.
        """
        task_status.started()
        try:
            await self._rounds()
        finally:
            self._thread.close()

    async def _rounds(self) -> NoReturn:
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            current, self._next = self._next, _Round()
            ends: list[tuple[PartitionLog, int]] = []
            pins: list[Syncable] = []
            for log in current.logs:
                end_offset, to_sync = log.begin_sync()
                ends.append((log, end_offset))
                pins += to_sync
            if pins:
                began = trio.current_time()
                await self._thread.run(partial(_sync_all, pins))
                self.sync_seconds += trio.current_time() - began
            for log, end_offset in ends:
                log.finish_sync(end_offset)
            self.rounds += 1
            current.done.set()

    def _enlist(self, log: PartitionLog) -> _Round:
        self._next.logs[log] = None
        self._asked.set()
        return self._next


def _sync_all(pins: Sequence[Syncable]) -> None:
    for pin in pins:
        pin.sync()
