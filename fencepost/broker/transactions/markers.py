"""Appending the markers that end a transaction: to this node's own logs, and to those of other brokers."""

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import last_marker
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.peers.notifying import notify_leaders
from fencepost.broker.ports import Broker
from fencepost.coordinator.ports import HowEnded, Marker
from fencepost.protocol.batch_header import CorruptBatch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import GROUP_TOPIC, TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.log.results import Ticket
    from fencepost.broker.place import RemoteLog

    _Log = PartitionLog | RemoteLog | None

logger = logging.getLogger(__name__)


class _Appended:
    """The result of each partition, and the tickets of the appended markers."""

    __slots__ = ("remote", "results", "tickets")

    def __init__(self) -> None:
        self.results: dict[TopicPartition, ErrorCode] = {}
        self.tickets: dict[TopicPartition, Ticket] = {}
        self.remote: list[TopicPartition] = []
        """Those whose logs other brokers lead."""


class Markers:
    """The coordinator's `MarkerWriter`."""

    def __init__(self, node: Broker) -> None:
        self._node = node

    async def write_markers(
        self, marker: Marker, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Append `marker` to each partition; return when all are durable and visible.

        Markers on `__consumer_offsets` then let the group coordinator apply or drop the pending offsets (T8). If the
        group coordinator could not load its log, the marker must wait: a log restored from a backup would lack it.
        """
        return await self.settled(self._append(marker, self._logs(partitions)), marker)

    def write_at_once(
        self, marker: Marker, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode] | None:
        """Like `write_markers` without waiting, if `durability=os`; None if the markers need a flush."""
        node = self._node
        logs = self._logs(partitions)
        if node.commit.durability != "os" or any(log is not None and log.binds_late for _, log in logs):
            return None
        appended = self._append(marker, logs)
        for ticket in appended.tickets.values():
            node.commit.schedule(ticket.log)
        return self._finished(appended, marker, False)

    def append_with_decision(
        self, marker: Marker, partitions: Collection[TopicPartition], may_be_first: bool
    ) -> "MarkersOfDecision | None":
        """Append the markers if they share the commit of the decision just appended, see `Place`.

        Files only share the round of flushes, each by itself: for markers that may be durable before the decision.
        """
        in_one_commit = self._node.place.commits_together
        if not (in_one_commit or may_be_first):
            return None
        appended = self._append(marker, self._logs(partitions))
        for ticket in () if in_one_commit else appended.tickets.values():
            self._node.commit.schedule(ticket.log)
        return MarkersOfDecision(self, marker, appended, in_one_commit)

    def how_ended(self, producer_id: int, marker_epoch: int, partitions: Collection[TopicPartition]) -> HowEnded:
        """Whether a log has a marker of this epoch. In a cluster the decision is never behind its markers."""
        if self._node.place.commits_together:
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

    async def settled(self, appended: "_Appended", marker: Marker) -> Mapping[TopicPartition, ErrorCode]:
        """The results of appended markers once they are durable and visible."""
        changed = await self._node.wait_durable(appended.tickets.values())
        if appended.remote:
            topics = self._node.metadata.image.topics_by_name
            remote = {tp: topics[tp.topic].topic_id for tp in appended.remote if tp.topic in topics}
            await notify_leaders(self._node.place, remote)
        return self._finished(appended, marker, changed)

    def _logs(self, partitions: Collection[TopicPartition]) -> "list[tuple[TopicPartition, _Log]]":
        """The logs in sorted order: the order of a set of names differs between runs."""
        return [(tp, self._log(tp)) for tp in sorted(partitions)]

    def _log(self, tp: TopicPartition) -> "_Log":
        log = self._node.partition(tp)
        if log is not None or not self._node.metadata.exists(tp):
            return log
        return self._node.place.marker_log(tp, self._node.metadata.image.topics_by_name[tp.topic].topic_id)

    def _append(self, marker: Marker, logs: "list[tuple[TopicPartition, _Log]]") -> _Appended:
        node = self._node
        now_ms = node.clock.now_ms()
        appended = _Appended()
        results = appended.results
        for tp, log in logs:
            if log is None:
                results[tp] = node.absence(tp)
                continue
            if not isinstance(log, PartitionLog):
                results[tp], appended.tickets[tp] = ErrorCode.NONE, log.append(marker, now_ms)
                appended.remote.append(tp)
                continue
            if tp.topic == GROUP_TOPIC and not node.groups.takes_markers(tp.partition):
                results[tp] = ErrorCode.NOT_LEADER_OR_FOLLOWER
                continue
            ticket = log.append_marker(*marker, now_ms)
            results[tp] = ticket.error
            if not ticket.error:
                appended.tickets[tp] = ticket
            else:
                logger.warning(
                    "marker refused partition=%s producer_id=%d code=%s", tp, marker.producer_id, ticket.error.name
                )
        node.metrics.markers_written += len(appended.tickets)
        return appended

    def _loss(self, ticket: "Ticket") -> ErrorCode:
        """Why an appended marker never becomes durable: its topic was deleted, or a flush failed."""
        return self._node.absence(ticket.log.tp) if ticket.log.disowned else ErrorCode.KAFKA_STORAGE_ERROR

    def _finished(self, appended: _Appended, marker: Marker, changed: bool) -> Mapping[TopicPartition, ErrorCode]:
        node, results = self._node, appended.results
        for tp, ticket in appended.tickets.items():
            if changed:
                results[tp] = ticket.error if ticket.is_settled else self._loss(ticket)
            if results[tp]:
                logger.warning("marker lost partition=%s code=%s", tp, results[tp].name)
            elif tp.topic == GROUP_TOPIC and not ticket.log.binds_late:  # else the log has told the group coordinator
                node.groups.complete_transaction(tp.partition, marker.producer_id, marker.commit)
        return results


class MarkersOfDecision:
    """The coordinator's `AppendedMarkers`."""

    def __init__(self, writer: Markers, marker: Marker, appended: _Appended, in_one_commit: bool) -> None:
        self.in_one_commit = in_one_commit
        self._writer = writer
        self._marker = marker
        self._appended = appended

    @property
    def results(self) -> Mapping[TopicPartition, ErrorCode]:
        return self._appended.results

    async def settled(self) -> Mapping[TopicPartition, ErrorCode]:
        return await self._writer.settled(self._appended, self._marker)
