"""One round of flushes in threads makes durable what all waiting tickets stand for (group commit)."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal, NoReturn

import trio

from fencepost.broker.log.durability.sync_threads import Failure, FlushThreads, SyncThreads
from fencepost.broker.log.durability.unflushed import WRITEBACK_BYTES, Unflushed, bytes_max
from fencepost.broker.log.results import FlushedLog, Ticket
from fencepost.broker.log.storage.store import SyncTask
from fencepost.protocol.topics import TopicPartition

Durability = Literal["fsync", "os"]
Lost = Callable[[FlushedLog, OSError], None]

BACKLOG_BYTES = 64 << 20
"""With more of one log unflushed its writers are made to wait: better they, one by one, than the event loop, whom the
kernel stops in the middle of a write when too much of its memory is dirty."""
CLOSED_MAX = 8
"""In `os`: with more segments of one log closed since its last flush one is begun. It holds four files of each open."""
CLOSED_BACKLOG = 32
"""With more, its writers wait."""
WRITEBACK_FILES = 64
"""A writeback takes no further log when it has so many files, which are open until it is done."""

logger = logging.getLogger(__name__)


class LogOffline(Exception):
    """A flush of the log failed: what was waited for is not durable, and will not be while this process lives."""

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(f"{tp} is offline: a flush failed")
        self.tp = tp


class _Round:
    """Everybody who asked since the last round began."""

    def __init__(self) -> None:
        self.logs: dict[FlushedLog, None] = {}
        self.done = trio.Event()


class _Batch:
    """What one flush covers: as much of these logs as there is now. Raises OSError when a file cannot be opened."""

    def __init__(self, logs: Iterable[FlushedLog], reserve: bool) -> None:
        self.sync_targets: list[SyncTask] = []
        self.owners: list[FlushedLog] = []
        """By the number of the target: whose it is."""
        self.size_bytes = 0
        self.binds_late = False
        self._ends: list[tuple[FlushedLog, int]] = []
        for log in logs:
            self.size_bytes += log.unflushed_bytes
            self.binds_late = self.binds_late or log.binds_late
            end_offset, sync_targets = log.begin_sync(reserve)
            self._ends.append((log, end_offset))
            self.sync_targets += sync_targets
            self.owners += [log] * len(sync_targets)

    def finish(self) -> None:
        """All is synced, but for what went offline."""
        for log, end_offset in self._ends:
            if log.writable:
                log.finish_sync(end_offset)


class LogFlusher:
    """Makes logs durable: in `fsync` before the answer; in `os` when a checkpoint asks for it. Until then the kernel
    writes, and where that would become too much for it, some of it is written back (`Unflushed`).

    One round runs at a time; who asks while it runs waits for the next, because only that one surely covers his bytes.

    A flush that fails is never tried again: the kernel may have dropped the bytes it could not write, and a second try
    would succeed and lie. Without `lost` the failure leaves `run` as OSError and must end the process; with it, only
    the logs of the files that failed go offline, and `lost` is told of each (it may raise the error after all). A
    failure of anything that is no one log's, such as the data directory, always leaves `run`.
    """

    def __init__(
        self,
        durability: Durability,
        lost: Lost | None = None,
        threads: FlushThreads | None = None,
        unflushed_bytes_max: int | None = None,
    ) -> None:
        self.durability: Durability = durability
        self.rounds = 0
        """Rounds finished so far."""
        self.flushes = 0
        """Files and directories flushed in them."""
        self.sync_seconds = 0.0
        """Time spent in them, waiting for the disk."""
        self._lost = lost
        self._current = self._next = _Round()
        self._ended = False
        self._asked = trio.Event()
        self._threads: FlushThreads = threads or SyncThreads()
        self._waiting = False
        self._last_asker: object = None
        self._failures: list[tuple[FlushedLog, OSError]] = []
        self._lazy = durability == "os"
        self._unflushed = Unflushed(bytes_max() if unflushed_bytes_max is None else unflushed_bytes_max)
        self._to_write_back: dict[FlushedLog, None] = {}
        self._being_written_back: dict[FlushedLog, int] = {}
        self._written_back = trio.Event()

    def is_flushing(self, log: FlushedLog) -> bool:
        """Whether threads are at this moment at something that a write to `log` could have to wait for: a round, after
        which the file system commits its journal, or a writeback of this very log.
        """
        return self._waiting and (not self._being_written_back or log in self._being_written_back)

    async def wait(self, ticket: Ticket, held_back: bool = True) -> None:
        """Return when `ticket` is settled; without a checkpoint if it already is. It may have been refused meanwhile.

        In `os` a writer that is `held_back` waits for the disk where too much is unflushed. Coordinators are not: they
        write little, and many requests wait for it. Raises LogOffline: then the ticket never settles.
        """
        log = ticket.log
        while not ticket.is_settled:
            if not log.writable or self._ended:
                raise LogOffline(log.tp)
            await self._enlist(log).done.wait()
        if self._lazy:
            if held_back:
                await self._catch_up(log)
        elif log.segments.written_bytes >= log.flush_at_bytes:
            self._enlist(log)
            await self._catch_up(log)

    async def flush(self, log: FlushedLog) -> None:
        """Return when a round has made durable what the log holds now, and nothing of it waits for one any more.

        Raises LogOffline.
        """
        if not self._ended:
            await self._enlist(log).done.wait()
        if log.offline or self._ended:
            raise LogOffline(log.tp)

    async def flush_all(self, logs: Iterable[FlushedLog]) -> None:
        """Return when what these logs hold now is durable, but for those that are offline by then."""
        waits = [self._enlist(log) for log in logs if awaits_flush(log)]
        if waits and not self._ended:
            await waits[0].done.wait()

    def is_settled(self, ticket: Ticket, held_back: bool = True) -> bool:
        """Whether `wait` would return at once and have nothing flushed either."""
        log = ticket.log
        return log.high_watermark >= ticket.end_offset and (
            log.segments.written_bytes < log.flush_at_bytes
            or (self._lazy and not (self._over_backlog(log) and held_back))
        )

    def settle_here(self, asker: object, logs: Iterable[FlushedLog]) -> bool:
        """Have the round that covers `logs` at once, if `asker` seems to be alone and the disk is quick; else False.

        Alone is who asked last time, too, while nobody waits: he would gain nothing by a round shared with others, and
        saves the way to the task that runs the rounds. With False, or for logs gone offline, `wait` tells the rest.
        """
        alone = asker is self._last_asker
        self._last_asker = asker
        if not alone or self._lazy or self._waiting or self._ended or self._asked.is_set():
            return False
        logs = [log for log in logs if log.writable]
        if any(log.binds_late for log in logs):
            return False  # its commit is another process's work
        if not self._threads.is_brief(len(logs), sum(log.unflushed_bytes for log in logs)):
            return False
        try:
            batch = _Batch(logs, self.durability == "fsync")
        except OSError as error:
            self._failures.append((logs[0], error))
        else:
            self._failures += self._flushed(batch, self._threads.sync_here(batch.sync_targets))
            if not self._failures:
                batch.finish()
                self.rounds += 1
                return True
        self._asked.set()  # what failed is for the rounds to deal with: their end may have to end the process
        return False

    def schedule(self, log: FlushedLog) -> None:
        """Have the log made durable soon, without waiting (acks=0 and acks=1)."""
        if self._lazy and not log.binds_late:
            if log.segments.written_bytes >= log.flush_at_bytes:
                self._look(log)
        elif log.high_watermark < log.log_end_offset or log.segments.written_bytes >= log.flush_at_bytes:
            self._enlist(log)

    def over_backlog(self, logs: Iterable[FlushedLog]) -> bool:
        """Whether `throttle` would wait."""
        if self._lazy:
            return self._unflushed.must_wait or any(_is_crowded(log, CLOSED_BACKLOG) for log in logs)
        return any(map(self._over_backlog, logs))

    async def throttle(self, logs: Iterable[FlushedLog]) -> None:
        """Hold a writer back who does not wait for the disk, while too much is unflushed; else without a checkpoint."""
        for log in logs:
            await self._catch_up(log)

    def _over_backlog(self, log: FlushedLog) -> bool:
        if not self._lazy:
            return log.unflushed_bytes > BACKLOG_BYTES
        self._look(log)
        return self._unflushed.must_wait or _is_crowded(log, CLOSED_BACKLOG)

    def _look(self, log: FlushedLog) -> None:
        self._unflushed.look(log)
        if _is_crowded(log, CLOSED_MAX):
            self._enlist(log)
        if self._unflushed.is_too_much:
            self._asked.set()

    async def _catch_up(self, log: FlushedLog) -> None:
        while self._over_backlog(log) and log.writable and not self._ended:
            await (self._written_back if self._lazy else self._enlist(log).done).wait()

    async def write_back(self, log: FlushedLog) -> None:
        """Before a flush in `os`: have most of the log written a little at a time, so that the flush has little to do.

        Writers may bring more than the disk takes; then it is given up after a while.
        """
        for _ in range(log.unflushed_bytes // WRITEBACK_BYTES * 2 if self._lazy else 0):
            if log.unflushed_bytes <= WRITEBACK_BYTES or not log.writable or self._ended:
                return
            self._to_write_back[log] = None
            self._asked.set()
            await self._written_back.wait()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Do the rounds until cancelled. Raises OSError when a flush failed and the process must end.

        Whoever still waits then, or asks later, is told that his log is offline: there may be those whom no
        cancellation reaches.
        """
        task_status.started()
        try:
            await self._rounds()
        finally:
            self._ended = True
            self._current.done.set()
            self._next.done.set()
            self._written_back.set()
            self._threads.close()

    async def _rounds(self) -> NoReturn:
        while True:
            await self._asked.wait()
            await self._do_round()

    async def _do_round(self) -> None:
        """One round. When it is done nothing here refers to its logs: one of them may be deleted before the next."""
        self._asked = trio.Event()
        if self._lazy:
            await self._write_back_some()
        current = self._current = self._next
        self._next = _Round()
        self._lose_failed()
        for logs in [[log] for log in current.logs] if self._lazy else [list(current.logs)]:
            await self._flush_logs(logs)
            if self._lazy:
                await self._write_back_some()
        self.rounds += 1
        current.done.set()
        self._current = self._next

    async def _flush_logs(self, logs: Sequence[FlushedLog]) -> None:
        batch = _Batch([log for log in logs if log.writable], self.durability == "fsync")
        if batch.sync_targets:
            self._failures += await self._flush_round(batch)
            self._lose_failed()
        batch.finish()
        if self._lazy:
            for log in logs:
                self._look(log)

    async def _write_back_some(self) -> None:
        """Write some back where that is wanted; wake all that wait for it, or for there to be no need of it."""
        wanted, self._to_write_back = self._to_write_back, {}
        if wanted or self._unflushed.is_too_much:
            await self._write_back_of(wanted)
        self._written_back.set()
        self._written_back = trio.Event()

    async def _write_back_of(self, wanted: Collection[FlushedLog]) -> None:
        """Have `WRITEBACK_BYTES` written: of the logs that asked for it, then of the largest while all are too much."""
        sync_targets, owners, sizes, left = (
            list[SyncTask](),
            list[FlushedLog](),
            dict[FlushedLog, int](),
            WRITEBACK_BYTES,
        )
        for log in dict.fromkeys([*wanted, *self._unflushed.largest_first()]):
            if left <= 0 or len(sync_targets) >= WRITEBACK_FILES or not (log in wanted or self._unflushed.is_too_much):
                break
            if not log.writable:
                continue
            sizes[log], fresh = log.begin_writeback(left)
            left -= sizes[log]
            sync_targets += fresh
            owners += [log] * len(fresh)
        self._being_written_back = sizes
        try:
            failures = await self._in_threads(sync_targets) if sync_targets else []
        finally:
            self._being_written_back = {}
        self._lose([(owners[number], error) for number, error in failures])
        for log, size_bytes in sizes.items():
            log.finish_writeback(size_bytes)
            self._unflushed.look(log)
        if self._unflushed.is_too_much:
            self._asked.set()

    async def _in_threads(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        self._waiting = True
        try:
            return await self._threads.sync(sync_targets)
        finally:
            self._waiting = False

    async def _flush_round(self, batch: "_Batch") -> list[tuple[FlushedLog, OSError]]:
        began = trio.current_time()
        # In `os` a flush ends what writebacks began, which its size does not tell.
        if not (self._lazy or batch.binds_late) and self._threads.is_brief(len(batch.sync_targets), batch.size_bytes):
            failures = self._threads.sync_here(batch.sync_targets)
        else:
            failures = await self._in_threads(batch.sync_targets)
        self.sync_seconds += trio.current_time() - began
        return self._flushed(batch, failures)

    def _flushed(self, batch: "_Batch", failures: Sequence[Failure]) -> list[tuple[FlushedLog, OSError]]:
        self.flushes += len(batch.sync_targets)
        return [(batch.owners[number], error) for number, error in failures]

    def _lose_failed(self) -> None:
        failures, self._failures = self._failures, []
        self._lose(failures)

    def lose(self, log: FlushedLog, error: OSError) -> None:
        """A flush of this log failed outside of the rounds. Raises `error` when the process must end."""
        self._lose([(log, error)])

    def _lose(self, failures: Sequence[tuple[FlushedLog, OSError]]) -> None:
        for log, error in failures:
            if self._lost is None or not _is_of(log, str(error.filename)):
                raise error
            if not log.offline:
                log.take_offline(error)
                self._lost(log, error)

    def _enlist(self, log: FlushedLog) -> _Round:
        self._next.logs[log] = None
        self._asked.set()
        return self._next


def _is_of(log: FlushedLog, path: str) -> bool:
    """Whether a file or directory is part of this log."""
    return path == log.store.place or path.startswith(f"{log.store.place}/")


def awaits_flush(log: FlushedLog) -> bool:
    """Whether the log holds what is not durable yet and will be with the next flush."""
    return log.high_watermark < log.log_end_offset and log.writable


def _is_crowded(log: FlushedLog, closed_max: int) -> bool:
    """Whether so many closed segments wait for a flush; for one that is gone none ever comes."""
    return log.segments.closed_since_sync > closed_max and log.writable
