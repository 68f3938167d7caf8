"""Writes recovery points and producer snapshots every few seconds, in a thread, so that starts stay short."""

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import trio

from fencepost.broker.log.durability.flusher import LogFlusher, LogOffline
from fencepost.broker.log.durability.sync_threads import FlushThreads, SyncThreads
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.store import FlushFailed, Store, SyncTask, is_shortage
from fencepost.broker.log.upkeep_failures import CHECKPOINT, UpkeepFailures

INTERVAL_SECONDS = 5.0
LOGS_AT_ONCE = 64
"""How many logs are checkpointed together: the files of such a group stay open until they are flushed."""

logger = logging.getLogger(__name__)


class ReplacedFile:
    """One small file that any thread replaces as a whole: the newest content wins, in whatever order threads write."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._lock = threading.Lock()
        self._made = self._written = 0

    def holding(self, data: bytes) -> SyncTask:
        """A task that durably writes `data` when synced. The order of the calls of `holding` decides what is newer."""
        self._made += 1
        return _Content(self, self._made, data)

    def write(self, number: int, data: bytes) -> None:
        """Write the content with that number, unless the file holds a newer one. Raises OSError."""
        with self._lock:
            if number > self._written:
                self._store.replacement(self._name, data).sync()
                self._written = number


class _Content:
    def __init__(self, file: ReplacedFile, number: int, data: bytes) -> None:
        self._file = file
        self._number = number
        self._data = data

    def sync(self) -> None:
        self._file.write(self._number, self._data)


class Checkpoints(Protocol):
    """The part of `LogManager` that this module needs."""

    upkeep: UpkeepFailures

    def logs(self) -> Collection[PartitionLog]: ...

    def background_tasks(self, seconds: float) -> list[SyncTask]:
        """The tasks that are due for a background thread."""

    def checkpoint_files(self, logs: Iterable[PartitionLog]) -> list[SyncTask]:
        """Tasks that write the recovery points of `logs` when synced."""


class Checkpointer:
    """Takes the checkpoints that are due.

    Recovery depends on this order. First a log's snapshot, indexes and data are durable. Then a round of flushes makes
    everything else durable that was closed before. Then the recovery point is written, and then older snapshots are
    deleted. So a recovery point on disk covers only durable data, and there is a snapshot at or below it.
    """

    def __init__(
        self,
        directory: Checkpoints,
        flusher: LogFlusher,
        monotonic: Callable[[], float],
        threads: FlushThreads | None = None,
    ) -> None:
        self._directory = directory
        self._flusher = flusher
        self._monotonic = monotonic
        self._threads: FlushThreads = threads or SyncThreads(0)

    async def run(self) -> None:
        """Call `run_once` every few seconds, until cancelled. Raises OSError as `LogFlusher.run` does."""
        try:
            while True:
                await trio.sleep(INTERVAL_SECONDS)
                with self._directory.upkeep.guard(CHECKPOINT):
                    await self.run_once()
        finally:
            self._threads.close()

    async def run_once(self) -> None:
        """Run the background tasks, and take every checkpoint that is due now.

        Raises OSError when a flush failed and the process must end.
        """
        background_tasks = self._directory.background_tasks(self._monotonic())
        for _, failure in await self._threads.sync(background_tasks) if background_tasks else ():
            if isinstance(failure, FlushFailed):
                raise failure
            logger.warning("a background task failed, the next start repeats it: %s", failure)
        seconds = self._monotonic()
        due = [log for log in self._directory.logs() if log.writable and log.pace.due(seconds)]
        for log in due:
            await self._flusher.write_back(log)
        for at in range(0, len(due), LOGS_AT_ONCE):
            await self._take(due[at : at + LOGS_AT_ONCE])

    async def _take(self, due: list[PartitionLog]) -> None:
        sync_targets: list[SyncTask] = []
        owners: list[PartitionLog] = []
        taken: dict[PartitionLog, int] = {}
        for log in due:
            await trio.lowlevel.checkpoint()
            wanted: list[SyncTask] | None = None
            with self._directory.upkeep.guard(CHECKPOINT, log):
                wanted = log.checkpoint() if log.writable else None
            if wanted is not None:
                taken[log] = log.log_end_offset
                sync_targets += wanted
                owners += [log] * len(wanted)
        for number, failure in await self._threads.sync(sync_targets) if sync_targets else ():
            log = owners[number]
            if is_shortage(failure):
                self._directory.upkeep.note(CHECKPOINT, failure, log)
                taken.pop(log, None)
            else:
                self._flusher.lose(log, failure)
        done = {log: offset for log, offset in taken.items() if await self._is_durable(log)}
        if done:
            await self._write_down(done)

    async def _is_durable(self, log: PartitionLog) -> bool:
        try:
            await self._flusher.flush(log)
        except LogOffline:
            return False
        return True

    async def _write_down(self, done: dict[PartitionLog, int]) -> None:
        failures = await self._threads.sync(self._directory.checkpoint_files(done))
        for _, failure in failures:
            if isinstance(failure, FlushFailed):
                raise failure
            logger.warning("recovery points not written, the broker will try again: %s", failure)
        if failures:
            return
        for log, offset in done.items():
            with self._directory.upkeep.guard("the deletion of old producer snapshots", log):
                passed = log.drop_passed_snapshots(offset)
                for _, failure in await self._threads.sync(passed) if passed else ():
                    logger.warning("cannot free an old producer snapshot, the next start will: %s", failure)
