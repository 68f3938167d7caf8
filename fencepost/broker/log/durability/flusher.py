"""One round of flushes in threads makes the appends of all waiting tickets durable (group commit)."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NoReturn

import trio

from fencepost.broker.log.durability.flush_batch import FlushBatch, Gathering, Round
from fencepost.broker.log.durability.sync_threads import Failure, FlushThreads, SyncThreads
from fencepost.broker.log.durability.unflushed import WRITEBACK_BYTES, Unflushed, bytes_max
from fencepost.broker.log.results import FlushedLog, Ticket
from fencepost.broker.log.storage.store import SHORTAGE_PAUSE_SECONDS, FlushFailed, SyncTask, is_shortage
from fencepost.protocol.topics import TopicPartition

Durability = Literal["fsync", "os"]
Lost = Callable[[FlushedLog, OSError], None]

BACKLOG_BYTES = 64 << 20
"""With more unflushed bytes in one log the broker throttles its writers. Otherwise the kernel would block the event
loop in a write when too many pages are dirty."""
CLOSED_MAX = 8
"""In `os`: with more closed segments since a log's last flush, a flush begins. It holds four files of each open."""
CLOSED_BACKLOG = 32
"""In `os`: with more closed segments since a log's last flush, its writers are throttled."""
WRITEBACK_FILES = 64
"""A writeback adds no further log when it has this many files, which stay open until it is done."""

logger = logging.getLogger(__name__)


class LogOffline(Exception):
    """A flush of the log failed: the append is not durable, and will not become so while this process runs."""

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(f"{tp} is offline: a flush failed")
        self.tp = tp


class LogFlusher:
    """Makes logs durable: with `fsync` before the response, with `os` when a checkpoint requests it. Until then the
    kernel writes; if it holds too many dirty bytes, the flusher writes some back (`Unflushed`).

    One round runs at a time. A request during a round waits for the next one, which surely covers its bytes, unless
    the log was appended to and requested before the round began.

    A failed flush is never retried: the kernel may have dropped the bytes that it could not write, and a retry would
    succeed without them. Without `lost` the failure leaves `run` as FlushFailed and must end the process. With `lost`
    only the logs of the failed files go offline, and the flusher calls `lost` for each; `lost` may raise the error. A
    failure outside of a log, such as in the data directory, always leaves `run`.

    If a file cannot be opened, no flush was tried: only the log that waits for it goes offline, whatever `lost` is. If
    the system only lacks descriptors or memory, the round waits and tries again.
    """

    def __init__(
        self,
        durability: Durability,
        lost: Lost | None = None,
        threads: FlushThreads | None = None,
        unflushed_bytes_max: int | None = None,
        gathering: Gathering | None = None,
        unopened: Lost | None = None,
    ) -> None:
        """Without `gathering` each round begins at once. `unopened` (by default `lost`) is called for each log whose
        flush could not begin; it may raise the error.
        """
        self.durability: Durability = durability
        self.rounds = 0
        """Number of finished rounds."""
        self.flushes = 0
        """Number of files and directories flushed in these rounds."""
        self.sync_seconds = 0.0
        """Time that these rounds waited for the disk."""
        self._lost = lost
        self._unopened = unopened or lost or (lambda log, error: None)
        self._gathering = gathering
        self._current = self._next = Round()
        self._ended = False
        self._requested = trio.Event()
        self._threads: FlushThreads = threads or SyncThreads()
        self._waiting = False
        self._last_requester: object = None
        self._failures: list[tuple[FlushedLog, OSError]] = []
        self._lazy = durability == "os"
        self._unflushed = Unflushed(bytes_max() if unflushed_bytes_max is None else unflushed_bytes_max)
        self._to_write_back: dict[FlushedLog, None] = {}
        self._being_written_back: dict[FlushedLog, int] = {}
        self._written_back = trio.Event()

    @property
    def wants_more(self) -> bool:
        return self._gathering is not None and self._gathering.wants_more

    def is_flushing(self, log: FlushedLog) -> bool:
        """Whether a thread does something that could block a write to `log`: a round, after which the file system
        commits its journal, or a writeback of this log.
        """
        return self._waiting and (not self._being_written_back or log in self._being_written_back)

    def uses(self, log: FlushedLog) -> bool:
        """Whether a round or a writeback has the log's files, or is about to."""
        return any(log in some for some in (self._current.logs, self._next.logs, self._being_written_back))

    async def wait(self, ticket: Ticket, throttled: bool = True) -> None:
        """Return when `ticket` is settled; without a checkpoint if it already is. It may have been rejected meanwhile.

        In `os` a `throttled` writer waits for the disk while too much is unflushed. Coordinators are not throttled:
        they write little, and many requests wait for them. Raises LogOffline: then the ticket never settles.
        """
        log = ticket.log
        while log.high_watermark < ticket.end_offset:
            if not log.writable or self._ended:
                raise LogOffline(log.tp)
            await self._round_for(ticket).done.wait()
        if self._lazy:
            if throttled:
                await self._catch_up(log)
        elif log.segments.written_bytes >= log.flush_at_bytes:
            self._enlist(log)
            await self._catch_up(log)

    async def wait_all(self, tickets: Collection[Ticket]) -> bool:
        """Return when every ticket is settled, or its log offline. One round covers them all.

        Returns True if the result of a ticket may have changed meanwhile: then the caller must check each again.
        """
        for ticket in tickets:
            if ticket.log.high_watermark < ticket.end_offset:
                self._round_for(ticket)
        changed = False
        for ticket in tickets:
            changed = changed or ticket.log.commits_remotely
            try:
                await self.wait(ticket)
            except LogOffline:
                changed = True
        return changed

    async def flush(self, log: FlushedLog) -> None:
        """Return when a round has made the log's current content durable. Raises LogOffline."""
        if not self._ended:
            await self._enlist(log).done.wait()
        if log.offline or self._ended:
            raise LogOffline(log.tp)

    async def flush_all(self, logs: Iterable[FlushedLog]) -> None:
        """Return when the current content of these logs is durable, except for logs that went offline."""
        waits = [self._enlist(log) for log in logs if awaits_flush(log)]
        if waits and not self._ended:
            await waits[0].done.wait()

    def is_settled(self, ticket: Ticket, throttled: bool = True) -> bool:
        """Whether `wait` would return at once, and would request no flush."""
        log = ticket.log
        return log.high_watermark >= ticket.end_offset and (
            log.segments.written_bytes < log.flush_at_bytes
            or (self._lazy and not (self._over_backlog(log) and throttled))
        )

    def settle_inline(self, requester: object, logs: Iterable[FlushedLog]) -> bool:
        """Run a round for `logs` inline if `requester` seems to be alone and the disk is fast; else return False.

        A requester is alone if it also made the last request and no task waits. A shared round would gain it nothing,
        and the inline round saves the wake-up of the task that runs the rounds. After False, or for logs that went
        offline, the caller uses `wait`.
        """
        alone = requester is self._last_requester
        self._last_requester = requester
        if not alone or self._lazy or self._waiting or self._ended or self._requested.is_set():
            return False
        logs = [log for log in logs if log.writable]
        if any(log.commits_remotely for log in logs):
            return False  # another process commits these logs
        if not self._threads.is_brief(len(logs), sum(log.unflushed_bytes for log in logs)):
            return False
        batch = FlushBatch(logs, self.durability == "fsync")
        failures = self._flushed(batch, self._threads.sync_inline(batch.sync_targets))
        if not failures:
            batch.finish()
            self.rounds += 1
            return True
        # The rounds handle the failure, because it may have to end the process, and try again after a shortage.
        self._failures += failures
        self._requested.set()
        return False

    def schedule(self, log: FlushedLog) -> None:
        """Have the log made durable soon, without waiting (acks=0 and acks=1)."""
        if self._lazy and not log.commits_remotely:
            if log.segments.written_bytes >= log.flush_at_bytes:
                self._look(log)
        elif log.high_watermark < log.log_end_offset or log.segments.written_bytes >= log.flush_at_bytes:
            self._enlist(log)

    def over_backlog(self, logs: Iterable[FlushedLog]) -> bool:
        """Whether `throttle` would wait for one of these logs."""
        if self._lazy:
            return self._unflushed.must_wait or any(_is_crowded(log, CLOSED_BACKLOG) for log in logs)
        return any(map(self._over_backlog, logs))

    async def throttle(self, logs: Iterable[FlushedLog]) -> None:
        """Wait while too much of these logs is unflushed, for a writer without acks=all; else without a checkpoint."""
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
            self._requested.set()

    async def _catch_up(self, log: FlushedLog) -> None:
        while self._over_backlog(log) and log.writable and not self._ended:
            await (self._written_back if self._lazy else self._enlist(log).done).wait()

    async def write_back(self, log: FlushedLog) -> None:
        """Before a flush in `os`: write most of the log back in small steps, so that the flush has little to do.

        Stops after a bounded number of steps, because writers may append faster than the disk writes.
        """
        for _ in range(log.unflushed_bytes // WRITEBACK_BYTES * 2 if self._lazy else 0):
            if log.unflushed_bytes <= WRITEBACK_BYTES or not log.writable or self._ended:
                return
            self._to_write_back[log] = None
            self._requested.set()
            await self._written_back.wait()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the rounds until cancelled. Raises OSError if a flush failed and the process must end.

        After the end all waiting and later calls raise LogOffline, because cancellation may not reach every waiter.
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
            await self._requested.wait()
            if self._gathering is not None:
                await self._gathering.gather()
            await self._do_round()

    async def _do_round(self) -> None:
        """One round. Afterwards nothing here refers to its logs, because one may be deleted before the next round."""
        self._requested = trio.Event()
        if self._lazy:
            await self._write_back_some()
        current = self._current = self._next
        self._next = Round()
        failures, self._failures = self._failures, []
        self._lose(failures)
        for logs in [[log] for log in current.logs] if self._lazy else [list(current.logs)]:
            await self._flush_logs(current, logs)
            if self._lazy:
                await self._write_back_some()
        self.rounds += 1
        current.done.set()
        self._current = self._next

    async def _flush_logs(self, current: Round, logs: Sequence[FlushedLog]) -> None:
        left: Collection[FlushedLog] = logs
        while left:
            batch = FlushBatch(left, self.durability == "fsync")
            current.ends |= batch.ends
            short: dict[FlushedLog, OSError] = {}
            if batch.sync_targets or batch.unopened:
                failures = await self._flush_round(batch)
                short = {log: error for log, error in failures if is_shortage(error)}
                self._lose(failures)
            batch.finish(short)
            left = short
            await _pause(short)
        if self._lazy:
            for log in logs:
                self._look(log)

    async def _write_back_some(self) -> None:
        """Write some bytes back if that is requested or needed, then wake all tasks that wait for it."""
        wanted, self._to_write_back = self._to_write_back, {}
        if wanted or self._unflushed.is_too_much:
            await self._write_back_of(wanted)
        self._written_back.set()
        self._written_back = trio.Event()

    async def _write_back_of(self, wanted: Collection[FlushedLog]) -> None:
        """Write `WRITEBACK_BYTES` back: of the requested logs, then of the largest while the total is too large."""
        left = WRITEBACK_BYTES
        sync_targets: list[SyncTask] = []
        owners: list[FlushedLog] = []
        sizes: dict[FlushedLog, int] = {}
        unopened: list[tuple[FlushedLog, OSError]] = []
        for log in dict.fromkeys([*wanted, *self._unflushed.largest_first()]):
            if left <= 0 or len(sync_targets) >= WRITEBACK_FILES or not (log in wanted or self._unflushed.is_too_much):
                break
            if not log.writable:
                continue
            try:
                sizes[log], fresh = log.begin_writeback(left)
            except OSError as error:
                unopened.append((log, error))
                continue
            left -= sizes[log]
            sync_targets += fresh
            owners += [log] * len(fresh)
        self._being_written_back = sizes
        try:
            failures = await self._in_threads(sync_targets) if sync_targets else []
        finally:
            self._being_written_back = {}
        self._lose(unopened + [(owners[number], error) for number, error in failures])
        await _pause({log: error for log, error in unopened if is_shortage(error)})
        for log, size_bytes in sizes.items():
            log.finish_writeback(size_bytes)
            self._unflushed.look(log)
        if self._unflushed.is_too_much:
            self._requested.set()

    async def _in_threads(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        self._waiting = True
        try:
            return await self._threads.sync(sync_targets)
        finally:
            self._waiting = False

    async def _flush_round(self, batch: "FlushBatch") -> list[tuple[FlushedLog, OSError]]:
        began = trio.current_time()
        # In `os` a flush also waits for the writebacks before it, which its size does not include.
        if not (self._lazy or batch.commits_remotely) and self._threads.is_brief(
            len(batch.sync_targets), batch.size_bytes
        ):
            failures = self._threads.sync_inline(batch.sync_targets)
        else:
            failures = await self._in_threads(batch.sync_targets)
        self.sync_seconds += trio.current_time() - began
        return self._flushed(batch, failures)

    def _flushed(self, batch: "FlushBatch", failures: Sequence[Failure]) -> list[tuple[FlushedLog, OSError]]:
        self.flushes += len(batch.sync_targets)
        return batch.unopened + [(batch.owners[number], error) for number, error in failures]

    def lose(self, log: FlushedLog, error: OSError) -> None:
        """Handle a flush of this log that failed outside of the rounds. Raises `error` if the process must end."""
        self._lose([(log, error)])

    def _lose(self, failures: Sequence[tuple[FlushedLog, OSError]]) -> None:
        for log, error in failures:
            if is_shortage(error):
                continue  # nothing was tried: the round tries again
            lost = self._unopened
            if isinstance(error, FlushFailed):
                if self._lost is None or not error.is_in(log.store.place):
                    raise error
                lost = self._lost
            if not log.offline:
                log.take_offline(error)
                lost(log, error)

    def _round_for(self, ticket: Ticket) -> Round:
        """The round under way if it covers `ticket`, else the next one, which then does."""
        return self._current if self._current.covers(ticket) else self._enlist(ticket.log)

    def _enlist(self, log: FlushedLog) -> Round:
        self._next.logs[log] = None
        self._requested.set()
        return self._next


async def _pause(short: Mapping[FlushedLog, OSError]) -> None:
    """Wait until the system may have what it lacked for these logs' files."""
    if short:
        log, error = next(iter(short.items()))
        logger.warning(
            "%d logs not flushed, the broker tries again; one: partition=%s cause=%s", len(short), log.tp, error
        )
        await trio.sleep(SHORTAGE_PAUSE_SECONDS)


def awaits_flush(log: FlushedLog) -> bool:
    return log.high_watermark < log.log_end_offset and log.writable


def _is_crowded(log: FlushedLog, closed_max: int) -> bool:
    """Whether more than `closed_max` closed segments wait for a flush; never for a log that is not writable."""
    return log.segments.closed_since_sync > closed_max and log.writable
