"""Moves partitions between cores while they run (KIP-455). No record is copied: the log's directory is renamed.

    the metadata: a replica is added    the leader hides the partition, makes its log durable, closes it, and renames
                                        its directory into that of the core that is added; then it asks the controller
    the metadata: that core leads       it gives the directory its name again, opens the log, and leads

Only the leader by the metadata touches the directory. So after a crash the place of the directory says how far the
leader came: it goes on from there, or takes the directory back if the move was cancelled.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import trio

from fencepost.broker.cores.handed_logs import (
    Handed,
    HandedLogs,
    delete,
    forget_offsets,
    hand_over,
    offsets_in,
    sync_names,
    take,
)
from fencepost.broker.log.durability.upkeep import sync_all
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.producer_state import Refusal
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.layout import core_directories
from fencepost.broker.log.storage.store import CorruptLogFile, FlushFailed, SyncTask
from fencepost.broker.ports import Broker
from fencepost.coordinator.metadata.image import PartitionImage, TopicImage
from fencepost.coordinator.metadata.reassignments import HandedOver
from fencepost.coordinator.runtime.runtime import CoordinatorRuntime
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TRANSACTION_TOPIC, TopicPartition

BUSY_SECONDS = 0.01
QUIET_SECONDS = 2.0
"""How long a hidden log may be busy, before it is led again and the move is tried later."""
RETRY_SECONDS = 0.05
PAUSE_SECONDS = 5.0
"""How long a log is led before the next try, if it could not be handed over."""

logger = logging.getLogger(__name__)


class OtherCores(Protocol):
    """What a move needs of the other cores."""

    async def complete_move(self, one: HandedOver) -> ErrorCode:
        """Have the controller end a move."""

    async def is_up(self, broker: int) -> bool:
        """Whether a core answers."""

    async def begin_coordinating(self) -> None:
        """The markers of transactions that were another core's need a higher epoch. Raises OSError and ValueError."""


class LiveMoves:
    """Hands over logs that go to other cores, and takes those that come. Keep `run` running."""

    def __init__(self, node: Broker, root: Path, first: int) -> None:
        """`root` is the directory of core 0, whose node id is `first`. Raises OSError."""
        self._node = node
        self._id = node.config.node_id
        assert isinstance(node.logs.store, FileStore), "cores have files"
        self._own = node.logs.store
        self._root, self._first = root, first
        self._stores = {self._id: self._own}
        self._note_directories()
        self._logs = HandedLogs(self._stores.values())
        self._others: OtherCores
        """Set by `run`."""
        self._moving = node.partitions.moving
        self._leaving: dict[TopicPartition, bytes] = {}
        """Partitions that have to go to another core, with their topic ids."""
        self._handed: dict[TopicPartition, bytes] = {}
        """Logs that wait for the controller, with their topic ids."""
        self._coming: dict[TopicPartition, bytes] = {}
        """Logs that this core leads and has to take, with their topic ids."""
        self._not_before: dict[tuple[TopicPartition, bytes], float] = {}
        """When the next try to hand over is due."""
        self._changes = 0
        self._changed = trio.Event()

    # The metadata

    def recover(self) -> None:
        """At a start, when the metadata are known and before any log is opened: go on where a crash came in between.

        Raises OSError and CorruptLogFile.
        """
        image = self._node.metadata.image
        for known in image.topics_by_name.values():
            self._note_leaving(known)
        for found, topic_id, number in self._logs.all():
            topic = image.topics_by_id.get(topic_id)
            if topic is None:
                if found.store is self._own and topic_id in self._node.metadata.deleted_topic_ids:
                    delete(found)
            elif topic.assignment[number].leader == self._id:
                tp = TopicPartition(topic.name, number)
                if self._target(topic.assignment[number]) is None:
                    sync_all(self._adopt(found, tp, topic_id))
                    self._rename(found, tp)
                    sync_names(found.store, self._own)
                    forget_offsets(self._own, tp)
                    logger.info("partition taken partition=%s from=%s", tp, found.store.place)
                else:
                    self._moving.add(tp)
                    self._handed[tp] = topic_id

    def assignment_changed(self, before: TopicImage, topic: TopicImage) -> None:
        """The metadata have other replicas or leaders."""
        self._note_leaving(topic)
        for number, (was, now) in enumerate(zip(before.assignment, topic.assignment, strict=False)):
            tp = TopicPartition(topic.name, number)
            if now.leader == self._id and was.leader != self._id:
                self._moving.add(tp)
                self._coming[tp] = topic.topic_id
            elif was.leader == self._id and now.leader != self._id:
                self._forget(tp)
        self._wake()

    def _wake(self) -> None:
        self._changes += 1
        self._changed.set()
        self._changed = trio.Event()

    def _forget(self, tp: TopicPartition) -> None:
        self._handed.pop(tp, None)
        self._coming.pop(tp, None)
        self._moving.discard(tp)

    def _now(self, tp: TopicPartition, topic_id: bytes) -> PartitionImage | None:
        """What the metadata say; None if the topic was deleted."""
        topic = self._node.metadata.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.assignment[tp.partition]

    def _target(self, now: PartitionImage | None) -> int | None:
        """The core to which this one has to hand a partition over; None if it has not."""
        if now is None or not now.adding_replicas or now.leader != self._id:
            return None
        target = now.adding_replicas[0]
        if target not in self._stores:  # it may be a core that began later
            self._note_directories()
        return target if target in self._stores else None

    def _note_directories(self) -> None:
        disk = self._own.disk
        for number, path in core_directories(self._root, disk).items():
            self._stores.setdefault(self._first + number, FileStore(path, disk=disk))

    def _note_leaving(self, topic: TopicImage) -> None:
        for number, one in enumerate(topic.assignment):
            if self._target(one) is not None:
                self._leaving[TopicPartition(topic.name, number)] = topic.topic_id

    # Work

    async def run(self, others: OtherCores) -> None:
        """Until cancelled. Raises OSError, in a group, if the process must end."""
        self._others = others
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._repeat, self._take_all)
            nursery.start_soon(self._repeat, self._leave_all)

    async def _repeat(self, work: Callable[[], Awaitable[bool]]) -> None:
        """Work after each change of the metadata, and again soon while something is left to do."""
        while True:
            seen = self._changes
            is_done = await work()
            with trio.move_on_after(math.inf if is_done else RETRY_SECONDS):
                while self._changes == seen:
                    await self._changed.wait()

    async def _leave_all(self) -> bool:
        """Returns whether nothing is left to do."""
        for tp, topic_id in list(self._handed.items()):
            await self._end(tp, topic_id)
        for tp, topic_id in list(self._leaving.items()):
            target = self._target(self._now(tp, topic_id))
            # Otherwise a marker may know more than its coordinator, which asks only logs of its own core (0080).
            due_at = self._not_before.get((tp, topic_id), -math.inf) if self._node.transactions.is_decided else math.inf
            if target is None:
                self._not_before.pop((tp, topic_id), None)
                if self._leaving[tp] == topic_id:
                    del self._leaving[tp]
            elif trio.current_time() >= due_at and tp not in self._moving:
                await self._hand_over(tp, topic_id, target)
                await self._end(tp, topic_id)
        return not self._handed and not self._leaving

    # Ending to lead

    async def _hand_over(self, tp: TopicPartition, topic_id: bytes, target: int) -> None:
        """Close a log, and move its directory. It stays while it cannot be closed, and while the other core is down."""
        node = self._node
        if node.is_offline(tp):
            why = "partition cannot move, its log is offline: repair the log and start again, or cancel the move"
            logger.error("%s partition=%s to=%d", why, tp, target)
            self._not_before[tp, topic_id] = math.inf
            return
        log = node.partition(tp)
        if log is None or self._is_busy(log) or not await self._others.is_up(target) or not log.writable:
            return
        self._hide(log, f"{tp} moves to broker {target}")
        self._not_before[tp, topic_id] = trio.current_time() + PAUSE_SECONDS
        if await self._is_quiet(log) and self._target(self._now(tp, topic_id)) == target and log.writable:
            # No other task runs from the last look at the log to its release.
            try:
                hand_over(log, self._own, node.logs.kept.cleaned_to.get(tp), self._stores[target])
            except OSError as error:
                logger.error("partition stays here, its log cannot be moved partition=%s cause=%s", tp, error)
                if isinstance(error, FlushFailed):
                    node.flusher.lose(log, error)
            else:
                self._handed[tp] = topic_id
                self._not_before.pop((tp, topic_id), None)
                node.logs.release(tp, f"{tp} has moved to broker {target}")
                await trio.to_thread.run_sync(sync_names, self._stores[target], self._own)
                node.logs.kept.forget(tp)  # not before: a power cut could undo the rename, and keep their deletion
                logger.info("partition handed over partition=%s to=%d", tp, target)
                return
        await self._lead_again(log)

    def _hide(self, log: PartitionLog, why: str) -> None:
        """Clients and coordinators use it no more. What was appended goes on to become durable."""
        self._moving.add(log.tp)
        self._node.partitions.hide(log.tp)
        for runtime in self._coordinators(log.tp):
            runtime.unload(log.tp.partition)
        log.freeze(Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, why))

    async def _is_quiet(self, log: PartitionLog) -> bool:
        """Return when all of a hidden log is durable, and no thread uses its files; False if that takes long.

        Decisions of transactions that share a round with their markers are durable, too: after the move no coordinator
        would find their markers (0080). There is no checkpoint between the last look and the return.
        """
        node = self._node
        with trio.move_on_after(QUIET_SECONDS):
            await node.flusher.flush_all([log, *(one for one in node.logs.logs() if one.tp.topic == TRANSACTION_TOPIC)])
            while not log.disowned:
                if log.high_watermark == log.log_end_offset and not self._is_busy(log):
                    return True
                await trio.sleep(BUSY_SECONDS)
                await node.flusher.flush_all([log])
        return False

    def _is_busy(self, log: PartitionLog) -> bool:
        node = self._node
        return (
            node.upkeep_threads.is_busy
            or node.cleaner.is_cleaning(log)
            or node.large_writes.is_staging(log)
            or (log.tp in self._moving and node.flusher.uses(log))
        )

    async def _lead_again(self, log: PartitionLog) -> None:
        self._moving.discard(log.tp)
        if log.writable:
            log.freeze(None)
            await self._load_coordinators(log.tp)

    async def _end(self, tp: TopicPartition, topic_id: bytes) -> None:
        """Of a log that was handed over: have the controller end the move, or undo it."""
        if tp not in self._handed:
            return
        now = self._now(tp, topic_id)
        target = self._target(now)
        other: FileStore | None = None
        try:
            found = self._logs.find(tp, topic_id)
            if now is None and found is not None:
                await trio.to_thread.run_sync(delete, found)
            elif target is not None and found is not None and found.store is not self._stores[target]:
                self._stores[target].adopt_child(found.store, found.name)
                other = found.store
        except OSError as error:
            if isinstance(error, FlushFailed):
                raise
            logger.error("a log on its way cannot be moved yet partition=%s cause=%s", tp, error)
            return
        if now is None:
            self._forget(tp)
        elif target is None:  # cancelled
            del self._handed[tp]
            self._coming[tp] = topic_id
            self._wake()
        else:
            if other is not None:
                await trio.to_thread.run_sync(sync_names, self._stores[target], other)
            code = await self._others.complete_move(HandedOver(tp, topic_id, now.partition_epoch))
            if code:
                logger.info("the controller has not ended a move partition=%s cause=%s", tp, code.name)

    # Beginning to lead

    async def _take_all(self) -> bool:
        """Returns whether nothing is left to do."""
        for tp, topic_id in list(self._coming.items()):
            await self._take(tp, topic_id)
        return not self._coming

    async def _take(self, tp: TopicPartition, topic_id: bytes) -> None:
        """Lead a partition whose directory has come; or try again later."""
        node = self._node
        try:
            if tp not in node.logs.partitions() and not await self._move_here(tp, topic_id):
                return
            if self._now(tp, topic_id) is not None:
                await node.logs.open_in_thread(tp, topic_id, node.upkeep_threads)
            if tp.topic == TRANSACTION_TOPIC:
                await self._others.begin_coordinating()
        except (CorruptLogFile, OSError, ValueError) as error:
            if isinstance(error, FlushFailed):
                raise
            if not isinstance(error, CorruptLogFile):
                logger.error("partition cannot be opened yet partition=%s cause=%s", tp, error)
                return
            logger.error("partition is offline, the log that has come is damaged partition=%s cause=%s", tp, error)
            await self._lose(tp)
            return
        if self._coming.get(tp) == topic_id:
            self._forget(tp)
        await self._load_coordinators(tp)
        logger.info("partition taken partition=%s", tp)

    async def _move_here(self, tp: TopicPartition, topic_id: bytes) -> bool:
        """Move the directory of a log here; False if there is none to move, or not yet. Raises as `_adopt`."""
        found = self._logs.find(tp, topic_id)
        if self._now(tp, topic_id) is None:
            if found is not None:
                await trio.to_thread.run_sync(delete, found)
            self._forget(tp)
            return False
        if found is None:
            logger.critical("partition is offline, the directory of its log is missing partition=%s", tp)
            await self._lose(tp)
            return False
        for _, error in await self._node.upkeep_threads.sync(self._adopt(found, tp, topic_id)):
            raise error
        if self._now(tp, topic_id) is None:
            return False
        self._rename(found, tp)
        await trio.to_thread.run_sync(sync_names, found.store, self._own)
        forget_offsets(self._own, tp)
        return True

    async def _lose(self, tp: TopicPartition) -> None:
        """It must not begin again, empty, at offset 0."""
        self._forget(tp)
        self._node.logs.note_lost(tp)
        self._node.partitions.get(tp)
        await self._load_coordinators(tp)

    def _adopt(self, found: Handed, tp: TopicPartition, topic_id: bytes) -> list[SyncTask]:
        """Tasks that write the log's offsets into this core's checkpoint files. Raises OSError and CorruptLogFile."""
        return self._node.logs.kept.adopt(tp, topic_id, offsets_in(found))

    def _rename(self, found: Handed, tp: TopicPartition) -> None:
        take(found, self._own, tp)
        self._node.logs.add({tp: self._node.logs.kept.log_starts.get(tp, 0)})

    async def _load_coordinators(self, tp: TopicPartition) -> None:
        for runtime in self._coordinators(tp):
            await runtime.load(tp.partition)

    def _coordinators(self, tp: TopicPartition) -> list[CoordinatorRuntime[Any, Any, Any]]:
        return [runtime for runtime in self._node.runtimes if runtime.topic == tp.topic]
