"""Tells the leaders of partitions that a marker was committed there: they read it before they answer.

The hint is a ListOffsets request with the id of this broker, as brokers of Kafka send it. The leader reads the rows of
those logs before it answers. If the hint is lost, it finds the marker when it looks, or commits, next.
"""

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import trio

from fencepost.broker.cluster.peers import PeerUnavailable
from fencepost.protocol.messages.api02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.topics import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.cluster.membership import Membership

LIST_OFFSETS_VERSION = 7
LATEST = -1
TELL_SECONDS = 1.0
"""So long the end of a transaction waits for the leaders; they learn of it in any case."""

logger = logging.getLogger(__name__)


async def tell_leaders(cluster: "Membership", topic_ids: Mapping[TopicPartition, bytes]) -> None:
    """Return when the leaders of these partitions of other brokers have read the newest markers, or cannot be asked."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for tp, topic_id in topic_ids.items():
        broker = cluster.ownership.of(topic_id, tp.partition).broker
        if broker is not None and broker != cluster.node_id:
            by_broker.setdefault(broker, []).append(tp)
    with trio.move_on_after(TELL_SECONDS):
        async with trio.open_nursery() as nursery:
            for broker, partitions in sorted(by_broker.items()):
                nursery.start_soon(_tell, cluster, broker, partitions)


async def _tell(cluster: "Membership", broker: int, partitions: Collection[TopicPartition]) -> None:
    topics: dict[str, ListOffsetsTopic] = {}
    for tp in partitions:
        topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic))
        topic.partitions.append(ListOffsetsPartition(partition_index=tp.partition, timestamp=LATEST))
    request = ListOffsetsRequest(
        replica_id=cluster.node_id, isolation_level=IsolationLevel.READ_COMMITTED, topics=list(topics.values())
    )
    try:
        await cluster.links.ask(broker, request, LIST_OFFSETS_VERSION)
    except PeerUnavailable as error:
        logger.debug("broker %d finds %d markers when it looks next: %s", broker, len(partitions), error)
