"""OffsetFetch (9): read a group's committed offsets.

v1-10 are served. From v2 on a null list of topics means all of them, v7 can ask for stable offsets only (KIP-447,
row T6), v8 names many groups (KIP-709), v9 carries member epochs, which only groups of the consumer protocol check
(KIP-848), v10 names topics by id.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics, is_allowed
from fencepost.coordinator.group.offsets import FetchedOffset
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from fencepost.protocol.topics import TopicPartition

GROUP_ERROR_SINCE = 2
MANY_GROUPS_SINCE = 8
TOPIC_ID_SINCE = 10
NO_TOPIC_ID = bytes(16)


P = TypeVar("P", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)


class _Topic(NamedTuple):
    name: str
    topic_id: bytes
    offsets: Sequence[FetchedOffset]


async def handle(node: Broker, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    version = context.api_version
    if version < MANY_GROUPS_SINCE:
        asked = None if request.topics is None else [_group_topic(topic) for topic in request.topics]
        if not _may_see(node, request.group_id, context):
            return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, asked, version)
        topics = await _fetch(node, request.group_id, asked, request.require_stable, context)
        if refused := node.groups.refusal(request.group_id):
            return _refused(refused, asked, version)
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[_partition(OffsetFetchResponsePartition, offset) for offset in topic.offsets],
                )
                for topic in topics
            ]
        )
    groups = []
    for group in request.groups:
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if _may_see(node, group.group_id, context):
            refused = node.groups.consumers.check_fetch(group.group_id, group.member_id, group.member_epoch)
        if refused:
            groups.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=refused))
            continue
        topics = await _fetch(node, group.group_id, group.topics, request.require_stable, context)
        if refused := node.groups.refusal(group.group_id):
            groups.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=refused))
            continue
        groups.append(
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=[
                    OffsetFetchResponseTopics(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[_partition(OffsetFetchResponsePartitions, offset) for offset in topic.offsets],
                    )
                    for topic in topics
                ],
            )
        )
    return OffsetFetchResponse(groups=groups)


def _may_see(node: Broker, group_id: str, context: RequestContext) -> bool:
    return is_allowed(node, context, AclOperation.DESCRIBE, AclResourceType.GROUP, group_id)


def _refused(error: ErrorCode, asked: Sequence[OffsetFetchRequestTopics] | None, version: int) -> OffsetFetchResponse:
    """The response to a request for one group, if all of it is refused: without topics, as in Kafka
    (`OffsetFetchResponse.groupError`). v1 has no error for the whole response.
    """
    if version >= GROUP_ERROR_SINCE:
        return OffsetFetchResponse(error_code=error, topics=[])
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    _partition(OffsetFetchResponsePartition, offset) for offset in _failed(topic, topic.name, error)
                ],
            )
            for topic in asked or ()
        ]
    )


def _group_topic(topic: OffsetFetchRequestTopic) -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)


def _partition(struct: Callable[..., P], offset: FetchedOffset) -> P:
    return struct(
        partition_index=offset.partition.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=offset.error,
    )


async def _fetch(
    node: Broker,
    group_id: str,
    topics: Sequence[OffsetFetchRequestTopics] | None,
    require_stable: bool,
    context: RequestContext,
) -> list[_Topic]:
    """One group's offsets in the requested topics, in that order; in all topics if `topics` is None."""
    version = context.api_version
    if topics is None:
        every = await _fetch_all(node, group_id, require_stable, version)
        hidden = denied_topics(node, context, AclOperation.DESCRIBE, (topic.name for topic in every))
        return [topic for topic in every if topic.name not in hidden]
    asked: list[_Topic | None] = []
    wanted: list[TopicPartition] = []
    names = [node.metadata.topic_name(topic.topic_id) if version >= TOPIC_ID_SINCE else topic.name for topic in topics]
    hidden = denied_topics(node, context, AclOperation.DESCRIBE, names)
    for topic, name in zip(topics, names, strict=True):
        if name is None:
            asked.append(_Topic("", topic.topic_id, _failed(topic, "", ErrorCode.UNKNOWN_TOPIC_ID)))
            continue
        if name in hidden:
            offsets = _failed(topic, topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            asked.append(_Topic(topic.name, topic.topic_id, offsets))
            continue
        asked.append(None)
        wanted.extend(TopicPartition(name, index) for index in topic.partition_indexes)
    found = await node.groups.positions.fetch(group_id, wanted, require_stable)
    answer: list[_Topic] = []
    at = 0
    for topic, known in zip(topics, asked, strict=True):
        if known is not None:
            answer.append(known)
            continue
        end = at + len(topic.partition_indexes)
        topic_id = topic.topic_id if version >= TOPIC_ID_SINCE else NO_TOPIC_ID
        answer.append(_Topic(topic.name, topic_id, [_for_topic_id(offset, topic_id) for offset in found[at:end]]))
        at = end
    return answer


def _for_topic_id(offset: FetchedOffset, topic_id: bytes) -> FetchedOffset:
    """The offset, or none if it was committed for a deleted topic of the same name."""
    if topic_id in (NO_TOPIC_ID, offset.topic_id) or offset.topic_id is None:
        return offset
    return FetchedOffset(offset.partition)


def _failed(topic: OffsetFetchRequestTopics, name: str, error: ErrorCode) -> list[FetchedOffset]:
    return [FetchedOffset(TopicPartition(name, index), error=error) for index in topic.partition_indexes]


async def _fetch_all(node: Broker, group_id: str, require_stable: bool, version: int) -> list[_Topic]:
    """Every committed offset of the group; by id (v10) only those of topics that still exist."""
    by_topic: dict[str, list[FetchedOffset]] = {}
    for offset in await node.groups.positions.fetch(group_id, None, require_stable):
        by_topic.setdefault(offset.partition.topic, []).append(offset)
    if version < TOPIC_ID_SINCE:
        return [_Topic(name, NO_TOPIC_ID, offsets) for name, offsets in by_topic.items()]
    images = node.metadata.image.topics_by_name
    return [
        _Topic(name, images[name].topic_id, [_for_topic_id(offset, images[name].topic_id) for offset in offsets])
        for name, offsets in by_topic.items()
        if name in images
    ]
