"""Markers for partitions that other cores lead: WriteTxnMarkers, all that wait for one core in one request.

Kafka's TransactionMarkerChannelManager does the same, with one queue for each broker.
"""

import logging
from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from fencepost.broker.peers.asked_together import AskedTogether
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

Answers = dict[TopicPartition, ErrorCode]


class Sent(NamedTuple):
    """A marker, and its partitions at one core."""

    marker: Marker
    partitions: Collection[TopicPartition]


class MarkerWriter:
    """Writes markers at other brokers; one request to each is under way."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._asked: dict[int, AskedTogether[Sent, Answers]] = {}
        """By broker."""

    async def write(self, broker: int, marker: Marker, partitions: Collection[TopicPartition]) -> Answers:
        """The error of each partition. All have NETWORK_EXCEPTION if the broker cannot be asked: try again."""
        asked = self._asked.get(broker)
        if asked is None:
            asked = self._asked[broker] = AskedTogether(partial(self._ask, broker))
        try:
            return await asked.ask(Sent(marker, partitions))
        except PeerUnavailable as error:
            logger.debug("broker %d did not take a marker: %s", broker, error)
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)

    async def _ask(self, broker: int, sent: list[Sent]) -> list[Answers]:
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


def _writable(one: Sent) -> WritableTxnMarker:
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
