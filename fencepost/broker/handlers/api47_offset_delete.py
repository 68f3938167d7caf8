"""OffsetDelete (47): forget some of a group's positions while the group lives (KIP-496). v0 is served."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fencepost.broker.context import RequestContext
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api47_offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.node import Node


async def handle(node: "Node", request: Any, context: RequestContext) -> Any:
    """Forget what is asked, and say of each partition how it went."""
    known = {topic.name for topic in request.topics if topic.name in node.metadata.image.topics_by_name}
    wanted = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        if topic.name in known
        for partition in topic.partitions
    ]
    errors: Iterator[ErrorCode] = iter(())
    if wanted:
        deleted = await node.groups.delete_offsets(request.group_id, wanted)
        if deleted.error:
            return OffsetDeleteResponse(error_code=deleted.error)
        errors = iter(deleted.errors)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=next(errors) if topic.name in known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
