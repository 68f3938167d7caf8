"""Opens the logs that a start finds on disk, while clients are served."""

from functools import partial

import trio

from fencepost.broker.log.durability.sync_threads import FlushThreads
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.storage.store import SHORTAGE_PAUSE_SECONDS, CorruptLogFile, is_shortage
from fencepost.broker.log.upkeep_failures import OPENING
from fencepost.coordinator.metadata.service import MetadataService
from fencepost.coordinator.metadata.topic_names import INTERNAL_TOPICS
from fencepost.protocol.topics import TopicPartition

START_SECONDS = 1.0
"""How long a start waits for the logs. Kafka waits for all of them; here clients of the others have to retry."""


class LogOpener:
    """Opens one log after the other in a thread, those first that clients wait for.

    Internal topics are not among them: their coordinators open them before the broker serves anybody.
    """

    def __init__(self, logs: LogManager, metadata: MetadataService, threads: FlushThreads) -> None:
        self._logs, self._metadata, self._threads = logs, metadata, threads
        opened = {log.tp for log in logs.logs()}
        self._left = {tp for tp in logs.partitions() if tp.topic not in INTERNAL_TOPICS} - opened
        self._wanted: dict[TopicPartition, None] = {}
        """Those that clients wait for, in the order in which they asked."""
        self._finished = trio.Event()
        self._short = False
        """Whether the last log could not be opened because the system lacked descriptors or memory."""

    def hurry(self, tp: TopicPartition) -> bool:
        """Whether the log is still to be opened; if so, it is one of the next."""
        if tp not in self._left:
            return False
        self._wanted.setdefault(tp)
        return True

    @property
    def is_finished(self) -> bool:
        return self._finished.is_set()

    async def run(self, task_status: "trio.TaskStatus[None]") -> None:
        """Open all of them; the start goes on when they are open, or has waited long enough."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._open_all)
            with trio.move_on_after(START_SECONDS):
                await self._finished.wait()
            task_status.started()

    async def _open_all(self) -> None:
        for tp in sorted(self._left):
            while self._wanted:
                await self._open(next(iter(self._wanted)))
            await self._open(tp)
        self._finished.set()

    async def _open(self, tp: TopicPartition) -> None:
        while tp in self._left:
            topic = self._metadata.image.topics_by_name.get(tp.topic)
            if topic is not None and self._logs.opened(tp) is None:
                with self._logs.upkeep.guard(OPENING, failed=partial(self._failed, tp)):
                    await self._logs.open_in_thread(tp, topic.topic_id, self._threads)
            if self._short:
                self._short = False
                await trio.sleep(SHORTAGE_PAUSE_SECONDS)
            else:
                self._left.discard(tp)
        self._wanted.pop(tp, None)

    def _failed(self, tp: TopicPartition, error: Exception) -> None:
        """The next use of the log meets the error again; a damaged log was reported, and is offline."""
        self._short = is_shortage(error)
        if self._short or not isinstance(error, CorruptLogFile | OSError):
            self._logs.upkeep.note(OPENING, error, None, tp)
