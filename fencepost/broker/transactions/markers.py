"""Appending the markers that end a transaction: to this node's own logs, and to those of other brokers."""

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import trio

from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import last_marker
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.peers.notifying import notify_leaders
from fencepost.broker.ports import Broker
from fencepost.coordinator.ports import HowEnded, Marker
from fencepost.protocol.batch_header import CorruptBatch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import GROUP_TOPIC, SHARE_STATE_TOPIC, TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.log.results import Ticket
    from fencepost.broker.place import RemoteLog
    from fencepost.coordinator.group.service import GroupService
    from fencepost.coordinator.share.service import ShareStates

logger = logging.getLogger(__name__)


class Markers:
    """The coordinator's `MarkerWriter`."""

    def __init__(self, node: Broker) -> None:
        self._node = node

    def append(self, marker: Marker, partitions: Collection[TopicPartition]) -> "Appended":
        """Append `marker` to the logs of these partitions that are here."""
        return Appended(self._node, marker, partitions)

    async def write_markers(
        self, marker: Marker, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Append `marker` to each partition; return when all are durable and visible.

        Markers on `__consumer_offsets` then let the group coordinator apply or drop the pending offsets (T8), those on
        `__share_group_state` the share coordinator the acknowledgements. If the coordinator could not load its log, the
        marker must wait: a log restored from a backup would lack it.
        """
        place = self._node.place
        elsewhere, writer = place.leaders_elsewhere(partitions), place.marker_writer
        if writer is None or not elsewhere:
            return await Appended(self._node, marker, partitions).settled()
        here = frozenset(partitions).difference(*elsewhere.values())
        results: dict[TopicPartition, ErrorCode] = {}

        async def there(broker: int, some: Collection[TopicPartition]) -> None:
            results.update(await writer.write(broker, marker, some))

        async with trio.open_nursery() as nursery:
            for broker, some in elsewhere.items():
                nursery.start_soon(there, broker, some)
            results.update(await Appended(self._node, marker, here).settled())
        return results

    def append_with_decision(
        self, marker: Marker, partitions: Collection[TopicPartition], may_be_first: bool
    ) -> "Appended | None":
        """Append the markers if they share the commit of the decision just appended, see `Place`.

        Files only share the round of flushes, each by itself: for markers that may be durable before the decision.
        """
        place, moving = self._node.place, self._node.partitions.moving
        here = moving.isdisjoint(partitions) and not place.leaders_elsewhere(partitions)
        together = place.commits_together or (may_be_first and here)
        return Appended(self._node, marker, partitions) if together else None

    def how_ended(self, producer_id: int, marker_epoch: int, partitions: Collection[TopicPartition]) -> HowEnded:
        """Whether a log has a marker of this epoch. In a cluster the decision is never behind its markers."""
        # With partitions of other cores neither: `append_with_decision` appends nothing, so its markers came after it.
        if self._node.place.commits_together or self._node.place.leaders_elsewhere(partitions):
            return HowEnded.NOT_ENDED
        is_known = True
        for tp in sorted(partitions):
            log = self._node.partition(tp)
            if log is None:
                is_known = is_known and self._node.absence(tp) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            entry = log.producers.get(producer_id)
            if entry is None or entry.epoch != marker_epoch:
                continue
            try:
                commits = last_marker(log, producer_id, marker_epoch)
            except (CorruptLogFile, CorruptBatch, OSError) as error:
                logger.error("markers cannot be read partition=%s cause=%s", tp, error)
                is_known = False
                continue
            if commits is not None:
                return HowEnded.COMMITTED if commits else HowEnded.ABORTED
        return HowEnded.NOT_ENDED if is_known else HowEnded.UNKNOWN


def _concerned(node: Broker, topic: str) -> "GroupService | ShareStates | None":
    """The coordinator that keeps parts of transactions pending in its log until they end; None for other topics."""
    if topic == GROUP_TOPIC:
        return node.groups
    return node.share_states if topic == SHARE_STATE_TOPIC else None


class Appended:
    """A marker that was appended to its partitions: the coordinator's `AppendedMarkers`."""

    def __init__(self, node: Broker, marker: Marker, partitions: Collection[TopicPartition]) -> None:
        """Append it, in sorted order: the order of a set of names differs between runs."""
        self.in_one_commit = node.place.commits_together
        self.results: dict[TopicPartition, ErrorCode] = {}
        self._node = node
        self._marker = marker
        self._tickets: dict[TopicPartition, Ticket] = {}
        self._remote: list[TopicPartition] = []
        """Those whose logs other brokers lead."""
        now_ms = node.clock.now_ms()
        for tp in sorted(partitions):
            self.results[tp] = self._append(tp, now_ms)
        node.metrics.markers_written += len(self._tickets)

    def _append(self, tp: TopicPartition, now_ms: int) -> ErrorCode:
        node, marker = self._node, self._marker
        log: PartitionLog | RemoteLog | None = node.partition(tp)
        if log is None and node.metadata.exists(tp):
            log = node.place.marker_log(tp, node.metadata.image.topics_by_name[tp.topic].topic_id)
        if log is None:
            return node.absence(tp)
        if not isinstance(log, PartitionLog):
            self._tickets[tp] = log.append(marker, now_ms)
            self._remote.append(tp)
            return ErrorCode.NONE
        concerned = _concerned(node, tp.topic)
        if concerned is not None and not concerned.runtime.takes_markers(tp.partition):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        ticket = log.append_marker(*marker, now_ms)
        if not ticket.error:
            self._tickets[tp] = ticket
            if tp.topic == SHARE_STATE_TOPIC:
                node.share_states.marker_appended(tp.partition, marker.producer_id, marker.commit)
            if not self.in_one_commit:
                node.flusher.schedule(log)
        else:
            logger.warning(
                "marker refused partition=%s producer_id=%d code=%s", tp, marker.producer_id, ticket.error.name
            )
        return ticket.error

    def settled_now(self) -> Mapping[TopicPartition, ErrorCode] | None:
        """The results without waiting, as with `durability=os`; None if the markers need a flush."""
        return self._finished(False) if all(ticket.is_settled for ticket in self._tickets.values()) else None

    async def settled(self) -> Mapping[TopicPartition, ErrorCode]:
        """The results, once the appended markers are durable and visible."""
        changed = await self._node.flusher.wait_all(self._tickets.values())
        if self._remote:
            topics = self._node.metadata.image.topics_by_name
            remote = {tp: topics[tp.topic].topic_id for tp in self._remote if tp.topic in topics}
            await notify_leaders(self._node.place, remote)
        return self._finished(changed)

    def _finished(self, changed: bool) -> Mapping[TopicPartition, ErrorCode]:
        node, results = self._node, self.results
        for tp, ticket in self._tickets.items():
            if changed:
                results[tp] = ticket.error if ticket.is_settled else self._loss(ticket)
            if results[tp]:
                logger.warning("marker lost partition=%s code=%s", tp, results[tp].name)
            elif (concerned := _concerned(node, tp.topic)) is not None and (
                not ticket.log.commits_remotely or concerned is node.share_states
            ):  # a log that commits remotely informs the group coordinator itself
                concerned.complete_transaction(tp.partition, self._marker.producer_id, self._marker.commit)
        return results

    def _loss(self, ticket: "Ticket") -> ErrorCode:
        """Why an appended marker never becomes durable: its topic was deleted, or a flush failed."""
        return self._node.absence(ticket.log.tp) if ticket.log.disowned else ErrorCode.KAFKA_STORAGE_ERROR
