"""OffsetDelete (47): delete some of a group's committed offsets; the group remains (KIP-496). v0 is served."""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from fencepost.protocol.topics import TopicPartition


async def handle(node: Broker, request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    asked = [[TopicPartition(topic.name, one.partition_index) for one in topic.partitions] for topic in request.topics]
    refused = denied_topics(node, context, AclOperation.READ, (topic.name for topic in request.topics))
    wanted = [
        partition
        for topic in asked
        for partition in topic
        if partition.topic not in refused and node.metadata.exists(partition)
    ]
    deleted = await node.groups.positions.delete_offsets(request.group_id, wanted)
    if deleted.error:
        return OffsetDeleteResponse(error_code=deleted.error)
    codes = dict(zip(wanted, deleted.errors, strict=True))
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                        if topic.name in refused
                        else codes.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in zip(request.topics, asked, strict=True)
        ]
    )
