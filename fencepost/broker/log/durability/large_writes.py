"""A thread writes large batches to their files, so that the event loop does not block in the kernel.

A write to the page cache is usually a copy. But it takes file system locks, and a flush or a journal commit holds them
until the disk is done. For a batch of a megabyte the detour through a thread costs less than such a wait.
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
from fencepost.broker.log.producer_state import Refusal, VerificationGuard
from fencepost.broker.log.storage.store import Bytes, Staging
from fencepost.broker.log.validation import Accepted, check_batch
from fencepost.protocol.batch_header import HEADER_SIZE, assign_offset

BUSY_SECONDS = 1.0
"""How long the disk is considered busy after a flush: it empties its cache, and the journal commits."""


class LargeWrite(Protocol):
    """A client's batch that is about to be appended."""

    log: PartitionLog | None
    batch: Bytes
    guard: VerificationGuard | None
    checked: Accepted | Refusal | None
    """The result of validation for `PartitionLog.append`, so that the batch is not validated twice."""


class LargeWrites:
    """Stages batches of at least `from_bytes` before their append, one at a time in each log; None: never.

    It does so only while `is_flushing` holds for the log, and for a second after. Otherwise no lock can block the
    write, and the event loop writes it at less cost.
    """

    def __init__(
        self, from_bytes: int | None, is_flushing: Callable[[PartitionLog], bool], threads: FlushThreads | None = None
    ) -> None:
        self.from_bytes = sys.maxsize if from_bytes is None else from_bytes
        self._is_flushing = is_flushing
        self._threads: FlushThreads = threads or SyncThreads(helpers_max=0)
        self._append_locks: dict[PartitionLog, trio.Lock] = {}
        self._busy_until: WeakKeyDictionary[PartitionLog, float] = WeakKeyDictionary()

    def wants(self, log: PartitionLog) -> bool:
        """Whether to stage a large batch for this log. True while another one is staged: both use the same space."""
        now = trio.current_time()
        if self._is_flushing(log):
            self._busy_until[log] = now + BUSY_SECONDS
        return now < self._busy_until.get(log, now) or log in self._append_locks

    def is_staging(self, log: PartitionLog) -> bool:
        """Whether a thread writes to the log's file, or a caller is about to append what it wrote."""
        return log in self._append_locks

    @asynccontextmanager
    async def staged(self, writes: Iterable[LargeWrite], transaction_version: int, now_ms: int) -> AsyncGenerator[None]:
        """Write the bytes of these batches to their files before the caller appends them inside the context.

        Any other append to these logs meanwhile comes first, and withdraws the staged bytes. Other large batches for
        the same logs wait.
        """
        async with AsyncExitStack() as stack:
            for log, write in sorted(_first_of_each(writes), key=_partition):  # sorted, to avoid a deadlock
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
    """Begin to stage the batch if an append now would store it unchanged in the active segment; else return None.

    All bytes of the batch are written, so after a crash it is part of the log. Therefore it is checked as for an
    append. Only another append, which overwrites the bytes, can then invalidate the check.
    """
    config, producers = log.config, log.producers
    if not log.writable or not config.keeps_batches or log.epochs.latest != log.leader_epoch:
        return None
    checked = check_batch(write.batch, config, AppendOrigin.CLIENT, now_ms)
    if not isinstance(checked, Accepted):
        return None  # the append reports the fault
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
        return None  # the append meets the same error, and reports it
