"""What the leaders of partitions know that a group's coordinator reports: ends, and what became of single records.

The ends are asked for by ListOffsets, as by any client; Kafka's PartitionMetadataClient does the same. The states of
records are a share leader's alone, so it is asked for them with a tag of fencepost's own.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial

import trio

from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.place import Place
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.api90_describe_share_group_offsets import (
    AskedGroup,
    AskedTopic,
    DescribeShareGroupOffsetsRequest,
    RecordStates,
)
from fencepost.protocol.topics import IsolationLevel, TopicPartition

LIST_OFFSETS_VERSION = 7
DESCRIBE_SHARE_OFFSETS_VERSION = 1
CLIENT, LATEST = -1, -1
PATIENCE_SECONDS = 5.0
"""A leader that does not answer must not hold up an operator who looks at a group."""

logger = logging.getLogger(__name__)


async def high_watermarks(
    place: Place, image: MetadataImage, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """Those of partitions that other brokers lead; without what no leader answered for."""
    found: dict[TopicPartition, int] = {}
    await _ask_all(place, image, partitions, partial(_ask_ends, place, found))
    return found


async def record_states(
    place: Place, image: MetadataImage, group_id: str, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, RecordStates]:
    """Those of a share group's partitions that other brokers lead; without what no leader answered for."""
    found: dict[TopicPartition, RecordStates] = {}
    await _ask_all(place, image, partitions, partial(_ask_states, place, group_id, found))
    return found


async def _ask_all(
    place: Place,
    image: MetadataImage,
    partitions: Collection[TopicPartition],
    ask: Callable[[int, Collection[TopicPartition]], Awaitable[None]],
) -> None:
    asked: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        topic = image.topics_by_name.get(tp.topic)
        leader = None if topic is None else place.leader(topic.topic_id, tp.partition).leader
        if leader is not None and leader != place.node_id:
            asked.setdefault(leader, []).append(tp)
    with trio.move_on_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            for broker, some in asked.items():
                nursery.start_soon(_ask_one, ask, broker, some)


async def _ask_one(
    ask: Callable[[int, Collection[TopicPartition]], Awaitable[None]], broker: int, some: Collection[TopicPartition]
) -> None:
    try:
        await ask(broker, some)
    except PeerUnavailable as error:
        logger.debug("the leader of partitions cannot be asked: %s", error)


async def _ask_ends(
    place: Place, found: dict[TopicPartition, int], broker: int, some: Collection[TopicPartition]
) -> None:
    topics: dict[str, ListOffsetsTopic] = {}
    for tp in some:
        topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic, partitions=[]))
        topic.partitions.append(ListOffsetsPartition(partition_index=tp.partition, timestamp=LATEST))
    request = ListOffsetsRequest(
        replica_id=CLIENT, isolation_level=IsolationLevel.READ_UNCOMMITTED, topics=list(topics.values())
    )
    answer = await place.links.ask(broker, request, LIST_OFFSETS_VERSION)
    for answered in answer.topics:
        for one in answered.partitions:
            if one.error_code == ErrorCode.NONE:
                found[TopicPartition(answered.name, one.partition_index)] = one.offset


async def _ask_states(
    place: Place,
    group_id: str,
    found: dict[TopicPartition, RecordStates],
    broker: int,
    some: Collection[TopicPartition],
) -> None:
    topics: dict[str, AskedTopic] = {}
    for tp in some:
        topics.setdefault(tp.topic, AskedTopic(topic_name=tp.topic, partitions=[])).partitions.append(tp.partition)
    group = AskedGroup(group_id=group_id, topics=list(topics.values()))
    request = DescribeShareGroupOffsetsRequest(groups=[group], explain=True, of_leader=True)
    answer = await place.links.ask(broker, request, DESCRIBE_SHARE_OFFSETS_VERSION)
    for topic in answer.groups[0].topics:
        for one in topic.partitions:
            if one.states is not None:
                found[TopicPartition(topic.topic_name, one.partition_index)] = one.states
