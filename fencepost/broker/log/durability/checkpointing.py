"""Recovery points and producer snapshots, some seconds apart, with the waiting done in a thread: starts stay short."""

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import trio

from fencepost.broker.log.durability.flusher import LogFlusher, LogOffline
from fencepost.broker.log.durability.sync_threads import FlushThreads, SyncThreads
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.store import FlushFailed, Store, SyncTask

INTERVAL_SECONDS = 5.0
LOGS_AT_ONCE = 64
"""So many logs are checkpointed together: the files of one such group are held open until they are flushed."""

logger = logging.getLogger(__name__)


class ReplacedFile:
    """One small file that is replaced as a whole, from any thread: the newest content wins, whoever comes last."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._lock = threading.Lock()
        self._made = self._written = 0

    def holding(self, data: bytes) -> SyncTask:
        """What gives the file this content, durably, when synced. Contents are as new as they were asked for here."""
        self._made += 1
        return _Content(self, self._made, data)

    def write(self, number: int, data: bytes) -> None:
        """Put the content of that number in place, if none that is newer stands there. Raises OSError."""
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
    """What is asked of `LogDirectory`."""

    def logs(self) -> Collection[PartitionLog]:
        """The logs that are open."""

    def background_tasks(self, seconds: float) -> list[SyncTask]:
        """What else a thread should do by now and nobody waits for."""

    def checkpoint_files(self, logs: Iterable[PartitionLog]) -> list[SyncTask]:
        """What writes the recovery points of `logs` down when synced."""


class Checkpointer:
    """Takes the checkpoints that are due.

    The order that recovery rests on: snapshot, indexes and data of a log are durable, then a round of group commit has
    made durable all else that was sealed before, then the recovery point goes to the disk, then older snapshots go. So
    a recovery point on the disk speaks only of checkpoints that are durable, and there is a snapshot at or below it.
    """

    def __init__(
        self,
        directory: Checkpoints,
        commit: LogFlusher,
        monotonic: Callable[[], float],
        threads: FlushThreads | None = None,
    ) -> None:
        self._directory = directory
        self._commit = commit
        self._monotonic = monotonic
        self._threads: FlushThreads = threads or SyncThreads(0)

    async def run(self) -> None:
        """Look every few seconds, until cancelled. Raises OSError as `LogFlusher.run` does."""
        try:
            while True:
                await trio.sleep(INTERVAL_SECONDS)
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
            logger.warning("left to the next start: %s", failure)
        seconds = self._monotonic()
        due = [log for log in self._directory.logs() if log.writable and log.pace.due(seconds)]
        for log in due:
            await self._commit.write_back(log)
        for at in range(0, len(due), LOGS_AT_ONCE):
            await self._take(due[at : at + LOGS_AT_ONCE])

    async def _take(self, due: list[PartitionLog]) -> None:
        sync_targets: list[SyncTask] = []
        owners: list[PartitionLog] = []
        taken: dict[PartitionLog, int] = {}
        for log in due:
            await trio.lowlevel.checkpoint()
            try:
                wanted = log.checkpoint() if log.writable else None
            except OSError as error:
                logger.warning("no checkpoint of %s, which is tried again: %s", log.tp, error)
                continue
            if wanted is not None:
                taken[log] = log.log_end_offset
                sync_targets += wanted
                owners += [log] * len(wanted)
        for number, failure in await self._threads.sync(sync_targets) if sync_targets else ():
            self._commit.lose(owners[number], failure)
        done = {log: offset for log, offset in taken.items() if await self._is_durable(log)}
        if done:
            await self._write_down(done)

    async def _is_durable(self, log: PartitionLog) -> bool:
        try:
            await self._commit.flush(log)
        except LogOffline:
            return False
        return True

    async def _write_down(self, done: dict[PartitionLog, int]) -> None:
        failures = await self._threads.sync(self._directory.checkpoint_files(done))
        for _, failure in failures:
            if isinstance(failure, FlushFailed):
                raise failure
            logger.warning("recovery points not written, which is tried again: %s", failure)
        if failures:
            return
        for log, offset in done.items():
            try:
                passed = log.drop_passed_snapshots(offset)
            except OSError as error:
                logger.warning("old producer snapshots of %s stay, to no harm: %s", log.tp, error)
            else:
                for _, failure in await self._threads.sync(passed) if passed else ():
                    logger.warning("the space of an old producer snapshot is freed later: %s", failure)
