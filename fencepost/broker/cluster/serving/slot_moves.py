"""Moves slots while the broker runs: takes over what has no living owner, hands over what another broker should own."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import trio

from fencepost.broker.cluster.commit.shared_log import SharedLog
from fencepost.broker.cluster.commit.writer import Stopped
from fencepost.broker.cluster.engine import SLOTS, Fenced, Member, Slot, StoreUnavailable, log_id, slot_of
from fencepost.broker.cluster.ownership import METADATA_SLOT, gathered, spread
from fencepost.broker.cluster.reading.loading import LoadedLog
from fencepost.broker.cluster.serving.members import is_alive, may_own
from fencepost.broker.cluster.serving.membership import Membership
from fencepost.broker.log.durability.upkeep import sync_all
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import FlushedLog
from fencepost.broker.log.storage.layout import partition_of
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.metadata.log import METADATA_PARTITION
from fencepost.broker.peers.following import FOLLOW_SECONDS, become_controller
from fencepost.broker.ports import Broker
from fencepost.coordinator.ports import LogWriteFailed
from fencepost.coordinator.runtime.runtime import CoordinatorRuntime
from fencepost.protocol.topics import TopicPartition

GIVEN_AT_ONCE = 8
"""A broker gets no further slots before it has taken these: it may have died since it was seen last."""
RETRY_SECONDS = 0.5
BUSY_SECONDS = 0.02

logger = logging.getLogger(__name__)


class SlotMoves:
    """The only task that changes which slots this broker leads."""

    def __init__(self, node: Broker, cluster: Membership, spread: bool) -> None:
        """`spread`: all brokers own slots; otherwise one owns all, and the others stand by."""
        self._node = node
        self._cluster = cluster
        self._spread = spread

    async def run(self) -> None:
        """Look and move until cancelled, or until the broker was taken over."""
        cluster = self._cluster
        try:
            await cluster.change(lambda identity, engine: engine.ready(identity))
            await self._absorb_all()  # if it leads all slots from its start, this look is the last one
            while not cluster.over.is_set():
                if not await self._step():
                    await trio.sleep(FOLLOW_SECONDS)
        except (Fenced, Stopped) as error:
            logger.info("this broker moves no slots any more: %s", error)

    async def _step(self) -> bool:
        """Look once, and move what should move. Returns whether more may have to move."""
        cluster, before = self._cluster, self._cluster.ownership.version
        try:
            members, slots = await cluster.look()
        except StoreUnavailable as error:
            logger.debug("the brokers of the cluster cannot be read: %s", error)
            return False
        if cluster.ownership.version != before:
            self._node.metadata_answers.forget()
        plan = self._plan(members, slots)
        if self._node.stopping or plan is None:
            return False
        taken = await self._take(plan, members, slots)
        unled = [slot for slot in taken if slot.slot not in cluster.ownership.led]
        if unled:
            await self._begin(unled)
        given = Counter(plan[slot.slot] for slot in cluster.ownership.slots if slot.broker is None)
        leaving = [
            slot
            for slot in sorted(cluster.ownership.led)
            if plan[slot] != cluster.node_id and given[plan[slot]] < GIVEN_AT_ONCE
        ]
        return bool(leaving) and await self._hand_over_one(leaving)

    def _plan(self, members: Sequence[Member], slots: Sequence[Slot]) -> Sequence[int] | None:
        lease_ms = self._cluster.lease_ms
        able = {one.broker for one in members if may_own(one, lease_ms)}
        if not able:  # all are drained: one of them must lead
            able = {one.broker for one in members if one.ready and is_alive(one, lease_ms)}
        if not able:
            return None
        return spread(frozenset(able)) if self._spread else gathered(slots, able, METADATA_SLOT)

    async def _take(self, plan: Sequence[int], members: Sequence[Member], slots: Sequence[Slot]) -> list[Slot]:
        """Own the slots that this broker should own and that no other broker holds. Returns all that it owns."""
        cluster, lease_ms = self._cluster, self._cluster.lease_ms
        alive = {one.broker for one in members if is_alive(one, lease_ms)}
        me = cluster.node_id
        free = [slot.slot for slot in slots if plan[slot.slot] == me and slot.broker not in alive]
        taken: list[Slot] = []
        if free:
            taken = await cluster.change(lambda identity, engine: engine.take_over(identity, free, lease_ms))
        if taken:
            logger.info("this broker takes slots over broker=%d slots=%d", me, len(taken))
        return [*(slot for slot in slots if slot.broker == me), *taken]

    # Beginning to lead

    async def _begin(self, slots: Sequence[Slot]) -> None:
        """Load the logs of owned slots, and lead them."""
        cluster, node = self._cluster, self._node
        numbers = {slot.slot for slot in slots}
        loaded = await self._loaded(numbers)
        if loaded is None:
            return
        async with cluster.follower.lock:  # a new controller must not read its own records as those of another one
            await cluster.follower.read_to_end(node)
            # Further markers are appended as the owner's.
            if not await self._settled(lambda: cluster.remote_marker_logs.waiting(numbers)):
                return
            cluster.ownership.begin(slots)
        cluster.remote_marker_logs.forget(numbers)
        node.logs.add(cluster.logs.add(loaded))
        node.deleted_topics.delete_strays()
        if METADATA_SLOT in numbers:
            await become_controller(node, cluster.ownership.led[METADATA_SLOT])
        for runtime, partition in self._shards(numbers):
            if TopicPartition(runtime.topic, partition) in node.logs.partitions():
                await runtime.load(partition)
            else:
                runtime.allow(partition)
        await self._absorb_all()
        node.metadata_answers.forget()
        logger.info("this broker leads slots broker=%d slots=%d logs=%d", cluster.node_id, len(slots), len(loaded))

    async def _loaded(self, slots: Collection[int]) -> list[LoadedLog] | None:
        """The logs of these slots; None if the broker was taken over meanwhile."""
        while not self._cluster.over.is_set():
            try:
                return await self._cluster.load(slots)
            except (StoreUnavailable, CorruptLogFile) as error:
                logger.warning("%d slots cannot be loaded yet: %s", len(slots), error)
                await trio.sleep(RETRY_SECONDS)
        return None

    # Ending to lead

    async def _hand_over_one(self, leaving: Sequence[int]) -> bool:
        """Give up one of these slots. Returns whether one was given up."""
        async with self._cluster.growth.merging:
            for slot in leaving:
                if not self._is_compacting(slot):
                    await self._hand_over(slot)
                    return True
        return False

    async def _hand_over(self, slot: int) -> None:
        cluster, node = self._cluster, self._node
        if slot == METADATA_SLOT:
            try:
                await node.metadata.step_down()
            except LogWriteFailed as error:
                logger.info("this broker is not the controller any more: %s", error)
        cluster.ownership.end(slot)
        node.metadata_answers.forget()
        for runtime, partition in self._shards({slot}):
            runtime.unload(partition)
        cluster.remote_markers.impossible = False
        for log in self._logs(slot):
            node.partitions.hide(log.tp)
        # This broker's own coordinator may still append a marker. So nothing is awaited between the last look and
        # the release: else the log is dropped with the marker, while the decision commits.
        while await self._settled(lambda: [log for log in self._logs(slot) if log.high_watermark < log.log_end_offset]):
            if not self._is_compacting(slot):
                break
            await trio.sleep(BUSY_SECONDS)
        else:
            return
        why = f"another broker leads slot {slot} now"
        names, removals = cluster.logs.give_up(slot)
        for tp in filter(None, map(partition_of, names)):
            node.logs.release(tp, why)
        await cluster.change(lambda identity, engine: engine.give_up(identity, [slot]))
        logger.info("this broker gave a slot up broker=%d slot=%d logs=%d", cluster.node_id, slot, len(names))
        if removals:
            await trio.to_thread.run_sync(sync_all, removals)

    def _is_compacting(self, slot: int) -> bool:
        return self._cluster.growth.compactions.busy in [log.segments for log in self._logs(slot)]

    async def _settled(self, waiting: Callable[[], Sequence[FlushedLog]]) -> bool:
        """Whether a moment has come at which no append waits; False if the broker was taken over before."""
        while logs := waiting():
            if self._cluster.over.is_set() or self._cluster.writer.fenced:
                return False
            with trio.move_on_after(RETRY_SECONDS):
                await self._node.flusher.flush_all(logs)
            await trio.lowlevel.checkpoint()
        return not self._cluster.over.is_set()

    async def _absorb_all(self) -> None:
        """Absorb the rows of guests. From then on there are no new ones if this broker leads all slots."""
        rows = self._cluster.remote_markers
        rows.impossible = False
        absorbed = await rows.apply_external()
        rows.impossible = absorbed and len(self._cluster.ownership.led) == SLOTS

    # What belongs to a slot

    def _logs(self, slot: int) -> list[PartitionLog]:
        """The open logs of a slot, without that of the metadata, which each broker has open."""
        found = []
        for log in self._node.logs.logs():
            shared = log.segments
            if log.tp != METADATA_PARTITION and isinstance(shared, SharedLog) and slot_of(shared.log_id) == slot:
                found.append(log)
        return found

    def _shards(self, slots: Collection[int]) -> Iterator[tuple[CoordinatorRuntime[Any, Any, Any], int]]:
        """The coordinators' partitions that are in these slots."""
        for runtime in self._node.runtimes:
            topic = self._node.metadata.image.topics_by_name.get(runtime.topic)
            for partition in range(runtime.count if topic is not None else 0):
                assert topic is not None
                if slot_of(log_id(topic.topic_id, partition)) in slots:
                    yield runtime, partition
