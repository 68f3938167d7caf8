"""Markers for partitions that other cores lead: WriteTxnMarkers, all that wait for one core in one request.

Kafka's TransactionMarkerChannelManager does the same, with one queue for each broker.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

import trio

from fencepost.broker.peers.peer import Links, PeerUnavailable
from fencepost.coordinator.ports import Marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from fencepost.protocol.topics import TopicPartition

VERSION = 2

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A marker that waits for its partitions at one core."""

    marker: Marker
    partitions: Collection[TopicPartition]
    answers: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    done: trio.Event = field(default_factory=trio.Event)


class MarkerWriter:
    """Writes markers at other brokers; one request to each is under way."""

    def __init__(self, links: Links, nursery: trio.Nursery) -> None:
        self._links = links
        self._nursery = nursery
        self._queues: dict[int, list[_Waiting]] = {}

    async def write(
        self, broker: int, marker: Marker, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """The error of each partition. All have NETWORK_EXCEPTION if the broker cannot be asked: try again."""
        one = _Waiting(marker, partitions)
        queue = self._queues.setdefault(broker, [])
        queue.append(one)
        if len(queue) == 1:
            self._nursery.start_soon(self._send, broker, queue)
        await one.done.wait()
        return one.answers

    async def _send(self, broker: int, queue: list[_Waiting]) -> None:
        """Send what waits until nothing is left; markers that come meanwhile are in the next request."""
        while queue:
            sent = list(queue)
            try:
                answers = await self._ask(broker, sent)
            except PeerUnavailable as error:
                logger.debug("broker %d did not take %d markers: %s", broker, len(sent), error)
                answers = [dict.fromkeys(one.partitions, ErrorCode.NETWORK_EXCEPTION) for one in sent]
            del queue[: len(sent)]
            for one, found in zip(sent, answers, strict=True):
                one.answers = found
                one.done.set()

    async def _ask(self, broker: int, sent: list[_Waiting]) -> list[dict[TopicPartition, ErrorCode]]:
        request = WriteTxnMarkersRequest(markers=[_writable(one) for one in sent])
        answer = await self._links.ask(broker, request, VERSION)
        assert isinstance(answer, WriteTxnMarkersResponse)
        return [
            {
                TopicPartition(topic.name, part.partition_index): ErrorCode(part.error_code)
                for topic in one.topics
                for part in topic.partitions
            }
            for one in answer.markers
        ]


def _writable(one: _Waiting) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for tp in sorted(one.partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    marker = one.marker
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
