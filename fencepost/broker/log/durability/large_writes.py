"""Large batches are put into their files by a thread, so that the event loop never waits where the kernel does.

A write into the page cache is a copy, as a rule. But it takes locks of the file system, and whoever flushes, or commits
the journal, holds them as long as the disk takes. For a batch of a megabyte the way to a thread is the lesser evil.
"""

import sys
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol
from weakref import WeakKeyDictionary

import trio

from fencepost.broker.log.durability.sync_threads import FlushThreads, SyncThreads
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.producer_entries import ProducerEntry
from fencepost.broker.log.producer_state import VerificationGuard
from fencepost.broker.log.storage.store import Bytes, Staging
from fencepost.broker.log.validation import Accepted, check_batch
from fencepost.protocol.batch_header import HEADER_SIZE, assign_offset

BUSY_SECONDS = 1.0
"""After a flush the disk is taken to be busy for so long: its cache is emptied, the journal committed."""


class LargeWrite(Protocol):
    """A client's batch that is about to be appended."""

    log: PartitionLog | None
    batch: Bytes
    guard: VerificationGuard | None
    checked: Accepted | None
    """For `PartitionLog.append`, so that the batch is not checked twice."""


class LargeWrites:
    """Stages batches of `from_bytes` and more before they are appended, one at a time in each log; None: never.

    Only while `is_flushing` of that log, and for a second after: else nobody holds what a write could wait for, and it
    is cheaper where it is.
    """

    def __init__(
        self,
        from_bytes: int | None,
        is_flushing: Callable[[PartitionLog], bool],
        threads: FlushThreads | None = None,
    ) -> None:
        self.from_bytes = sys.maxsize if from_bytes is None else from_bytes
        self._is_flushing = is_flushing
        self._threads: FlushThreads = threads or SyncThreads(helpers_max=0)
        self._append_locks: dict[PartitionLog, trio.Lock] = {}
        self._busy_until: WeakKeyDictionary[PartitionLog, float] = WeakKeyDictionary()

    def wants(self, log: PartitionLog) -> bool:
        """Whether a large batch for this log is to be staged. Where another one is, it must not take its room."""
        now = trio.current_time()
        if self._is_flushing(log):
            self._busy_until[log] = now + BUSY_SECONDS
        return now < self._busy_until.get(log, now) or log in self._append_locks

    @asynccontextmanager
    async def staged(self, writes: Iterable[LargeWrite], transaction_version: int, now_ms: int) -> AsyncGenerator[None]:
        """Have the bytes of these batches written as far as that can be done before they are appended, inside.

        Whatever was appended to their logs meanwhile came first, and takes back what was staged. Others with large
        batches for the same logs wait.
        """
        async with AsyncExitStack() as stack:
            for log, write in sorted(_first_of_each(writes), key=_partition):  # in one order: nobody waits in a circle
                lock = self._append_locks.setdefault(log, trio.Lock())
                stack.callback(self._leave, log, lock)
                await stack.enter_async_context(lock)
                staged = stage(log, write, transaction_version, now_ms)
                if staged is not None:
                    stack.callback(log.segments.unstage, staged)
                    await self._threads.sync([staged])
            yield

    def _leave(self, log: PartitionLog, lock: trio.Lock) -> None:
        if not lock.locked() and self._append_locks.get(log) is lock:
            del self._append_locks[log]

    def close(self) -> None:
        """Let the thread go."""
        self._threads.close()


def _first_of_each(writes: Iterable[LargeWrite]) -> list[tuple[PartitionLog, LargeWrite]]:
    found: dict[PartitionLog, LargeWrite] = {}
    for write in writes:
        if write.log is not None:
            found.setdefault(write.log, write)
    return list(found.items())


def _partition(write: tuple[PartitionLog, LargeWrite]) -> tuple[str, int]:
    return write[0].tp


def stage(log: PartitionLog, write: LargeWrite, transaction_version: int, now_ms: int) -> Staging | None:
    """Begin, where the batch would be appended if it was now, as it is, and into the file that there is; else None.

    All of its bytes go in, so a crash makes it part of the log. Hence it is checked as an append would check it, and
    the log can only change its mind by another append, which takes the room.
    """
    config, producers = log.config, log.producers
    if not log.writable or not config.keeps_batches or log.epochs.latest != log.leader_epoch:
        return None
    checked = check_batch(write.batch, config, AppendOrigin.CLIENT, now_ms)
    if not isinstance(checked, Accepted):
        return None  # the append says how it is wrong
    write.checked = checked
    batch, header, _ = checked
    end_offset = log.log_end_offset
    if header.producer_id >= 0:
        admitted = producers.admit(header, end_offset, AppendOrigin.CLIENT, transaction_version, write.guard)
        if not isinstance(admitted, ProducerEntry):
            return None
    if log.segments.must_roll(len(batch), header, now_ms, config):
        return None
    head = bytearray(batch[:HEADER_SIZE])
    assign_offset(head, 0, end_offset, log.leader_epoch)
    try:
        return log.segments.stage(head, batch)
    except OSError:
        return None  # the append meets the same, answers it and logs it
