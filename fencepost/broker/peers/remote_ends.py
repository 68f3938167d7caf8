"""The ends of partitions that other brokers lead: their leaders are asked by ListOffsets, as by any client.

Kafka's PartitionMetadataClient asks with the same request.
"""

import logging
from collections.abc import Collection, Mapping
from functools import partial

import trio

from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.place import Place
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.topics import IsolationLevel, TopicPartition

LIST_OFFSETS_VERSION = 7
CLIENT, LATEST = -1, -1
PATIENCE_SECONDS = 5.0
"""A leader that does not answer must not hold up an operator who looks at a group."""

logger = logging.getLogger(__name__)


async def high_watermarks(
    place: Place, image: MetadataImage, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """Those of partitions that other brokers lead; without what no leader answered for."""
    asked: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        topic = image.topics_by_name.get(tp.topic)
        leader = None if topic is None else place.leader(topic.topic_id, tp.partition).leader
        if leader is not None and leader != place.node_id:
            asked.setdefault(leader, []).append(tp)
    found: dict[TopicPartition, int] = {}
    with trio.move_on_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            for broker, some in asked.items():
                nursery.start_soon(partial(_ask, place, broker, some, found))
    return found


async def _ask(place: Place, broker: int, some: Collection[TopicPartition], found: dict[TopicPartition, int]) -> None:
    topics: dict[str, ListOffsetsTopic] = {}
    for tp in some:
        topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic, partitions=[]))
        topic.partitions.append(ListOffsetsPartition(partition_index=tp.partition, timestamp=LATEST))
    request = ListOffsetsRequest(
        replica_id=CLIENT, isolation_level=IsolationLevel.READ_UNCOMMITTED, topics=list(topics.values())
    )
    try:
        answer = await place.links.ask(broker, request, LIST_OFFSETS_VERSION)
    except PeerUnavailable as error:
        logger.debug("the ends of partitions cannot be asked for: %s", error)
        return
    for answered in answer.topics:
        for one in answered.partitions:
            if one.error_code == ErrorCode.NONE:
                found[TopicPartition(answered.name, one.partition_index)] = one.offset
