"""DescribeShareGroupOffsets (90): from where share groups consume, and how far they are behind (KIP-932).

v0-1 are served; v1 returns the lag (KIP-1226). A partition without a state has the start offset -1 and no error, as
OffsetFetch has for one without an offset. With the tag `explain` (a fencepost extension) each partition also has the
states of its records. Only its leader knows them: the group's coordinator asks it, with the tag `of_leader`.
"""

from collections.abc import Collection, Mapping, Sequence

from fencepost.broker.network.context import RequestContext
from fencepost.broker.peers.remote_ends import high_watermarks, record_states
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied, denied_topics
from fencepost.broker.share.explaining import Explanations
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.coordinator.group.share_partitions import TopicOffsets
from fencepost.coordinator.share.values import UNINITIALIZED, ShareKey, StateSummary
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api90_describe_share_group_offsets import (
    AskedGroup,
    AskedTopic,
    DescribedGroup,
    DescribedPartition,
    DescribedTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from fencepost.protocol.topics import TopicPartition

NO_STATE = StateSummary(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
UNKNOWN = -1
"""A lag that is not known, and a count of deliveries that is not."""


async def handle(
    node: Broker, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    names = [group.group_id for group in request.groups]
    refused = denied(node, context, AclOperation.DESCRIBE, AclResourceType.GROUP, names)
    explanations = Explanations(node) if request.explain else None
    describe = _described_by_leader if request.of_leader else _described
    groups: list[DescribedGroup] = []
    for group in request.groups:
        if not node.share_protocol:
            groups.append(DescribedGroup(group_id=group.group_id, error_code=ErrorCode.UNSUPPORTED_VERSION))
        elif group.group_id in refused:
            groups.append(DescribedGroup(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        else:
            groups.append(await describe(node, context, group, explanations))
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _described(
    node: Broker, context: RequestContext, group: AskedGroup, explanations: Explanations | None
) -> DescribedGroup:
    asked = None if group.topics is None else _numbers(group.topics)
    hidden = denied_topics(node, context, AclOperation.DESCRIBE, asked or ())
    visible = None if asked is None else {name: numbers for name, numbers in asked.items() if name not in hidden}
    try:
        found = await node.groups.shares.partitions.offsets(group.group_id, visible)
    except Refused as refusal:
        return DescribedGroup(group_id=group.group_id, error_code=refusal.code, error_message=str(refusal))
    if asked is None:
        hidden = denied_topics(node, context, AclOperation.DESCRIBE, [topic.name for topic in found])
        found = [topic for topic in found if topic.name not in hidden]
        asked = {topic.name: sorted(topic.summaries) for topic in found}
    ends = await _ends(node, found)
    topics = [_topic(node, topic, asked[topic.name], ends) for topic in found]
    if explanations is not None:
        await _explain(group.group_id, topics, explanations)
        there = {
            TopicPartition(described.topic_name, one.partition_index): one
            for described in topics
            for one in described.partitions
            if one.start_offset != UNINITIALIZED and one.states is None
        }
        for partition, states in (await record_states(node.place, node.metadata.image, group.group_id, there)).items():
            there[partition].states = states
    topics += [_hidden(name, numbers) for name, numbers in asked.items() if name in hidden]
    return DescribedGroup(group_id=group.group_id, topics=topics)


async def _described_by_leader(
    node: Broker, context: RequestContext, group: AskedGroup, explanations: Explanations | None
) -> DescribedGroup:
    """The states alone, of the partitions that this broker leads. It may know nothing else of the group."""
    asked = _numbers(group.topics or ())
    hidden = denied_topics(node, context, AclOperation.DESCRIBE, asked)
    known = node.metadata.image.topics_by_name
    topics = [
        _topic(node, TopicOffsets(name, known[name].topic_id, {}), numbers, {})
        for name, numbers in asked.items()
        if name in known and name not in hidden
    ]
    if explanations is not None:
        await _explain(group.group_id, topics, explanations)
    return DescribedGroup(group_id=group.group_id, topics=topics)


async def _explain(group_id: str, topics: Sequence[DescribedTopic], explanations: Explanations) -> None:
    for described in topics:
        for one in described.partitions:
            key = ShareKey(group_id, described.topic_id, one.partition_index)
            one.states = await explanations.of(key, TopicPartition(described.topic_name, one.partition_index))


def _numbers(topics: Sequence[AskedTopic]) -> dict[str, list[int]]:
    asked: dict[str, list[int]] = {}
    for topic in topics:
        asked.setdefault(topic.topic_name, []).extend(topic.partitions)
    return asked


async def _ends(node: Broker, topics: Sequence[TopicOffsets]) -> Mapping[TopicPartition, int]:
    """The high watermarks from which lags count; without those of leaders that do not answer."""
    counted = [
        TopicPartition(topic.name, number)
        for topic in topics
        for number, summary in topic.summaries.items()
        if _has_lag(summary)
    ]
    own = {partition: log.high_watermark for partition in counted if (log := node.partition(partition)) is not None}
    others = [partition for partition in counted if partition not in own]
    return {**own, **await high_watermarks(node.place, node.metadata.image, others)} if others else own


def _has_lag(summary: StateSummary) -> bool:
    known = summary.start_offset != UNINITIALIZED and summary.delivery_complete_count != UNKNOWN
    return known and not summary.error


def _topic(
    node: Broker, topic: TopicOffsets, numbers: Collection[int], ends: Mapping[TopicPartition, int]
) -> DescribedTopic:
    partitions = [
        _partition(node, TopicPartition(topic.name, number), topic.summaries.get(number, NO_STATE), ends)
        for number in numbers
    ]
    return DescribedTopic(topic_name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _partition(
    node: Broker, partition: TopicPartition, summary: StateSummary, ends: Mapping[TopicPartition, int]
) -> DescribedPartition:
    """The lag counts the records up to the high watermark that are neither acknowledged nor archived.

    (Kafka's GroupCoordinatorService.computeShareGroupLagAndBuildResponse, which asks the leaders for the ends)
    """
    number = partition.partition
    if summary.error:
        return DescribedPartition(partition_index=number, start_offset=UNINITIALIZED, leader_epoch=0, lag=UNKNOWN)
    lag = UNKNOWN
    if _has_lag(summary):
        end = ends.get(partition)
        if end is None:
            return DescribedPartition(partition_index=number, error_code=node.absence(partition))
        lag = end - summary.start_offset - summary.delivery_complete_count
    return DescribedPartition(
        partition_index=number, start_offset=summary.start_offset, leader_epoch=summary.leader_epoch, lag=lag
    )


def _hidden(name: str, numbers: Collection[int]) -> DescribedTopic:
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions = [
        DescribedPartition(partition_index=number, start_offset=UNINITIALIZED, lag=UNKNOWN, error_code=error)
        for number in numbers
    ]
    return DescribedTopic(topic_name=name, partitions=partitions)
