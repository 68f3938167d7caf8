"""OffsetCommit (8): store a group's offsets; the response waits until they are durable.

v0-10 are served. Only librdkafka 1.0 to 1.2 sends v0 and v1 (in Kafka v0 went to ZooKeeper, here it is a commit
without membership). v1 brings a timestamp per partition, v2-4 a retention, v7 static members (KIP-345), v9 returns
GROUP_ID_NOT_FOUND for an unknown group (KIP-848), v10 names topics by id.
"""

from collections.abc import Collection

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics
from fencepost.coordinator.group.commit import Commit
from fencepost.coordinator.group.offsets import OffsetCommitItem
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fencepost.protocol.topics import TopicPartition

GROUP_NOT_FOUND_SINCE = 9
TOPIC_ID_SINCE = 10


async def handle(node: Broker, request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    version = context.api_version
    unknown_group = ErrorCode.GROUP_ID_NOT_FOUND if version >= GROUP_NOT_FOUND_SINCE else ErrorCode.ILLEGAL_GENERATION
    names = [
        node.metadata.topic_name(topic.topic_id) if version >= TOPIC_ID_SINCE else topic.name
        for topic in request.topics
    ]
    refused = denied_topics(node, context, AclOperation.READ, names)
    items = tuple(
        OffsetCommitItem(
            TopicPartition(name, partition.partition_index),
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata,
            partition.commit_timestamp,
            topic.topic_id if version >= TOPIC_ID_SINCE else None,
        )
        for name, topic in zip(names, request.topics, strict=True)
        if name is not None and name not in refused
        for partition in topic.partitions
    )
    command = Commit(
        request.group_id,
        items,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        request.retention_time_ms,
        unknown_group,
    )
    errors = iter(await node.groups.positions.commit(command))
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=unusable_topic(name, refused) or next(errors),
                    )
                    for partition in topic.partitions
                ],
            )
            for name, topic in zip(names, request.topics, strict=True)
        ]
    )


def unusable_topic(name: str | None, refused: Collection[str]) -> ErrorCode:
    """Why no offset of this topic can be committed, whatever the group says."""
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if name in refused else ErrorCode.NONE
