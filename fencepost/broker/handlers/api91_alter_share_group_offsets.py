"""AlterShareGroupOffsets (91): set from where an empty share group consumes (KIP-932).

v0 is served. A group that does not exist is created (KIP-1323 copies a consumer group's offsets in this way).
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.coordinator.share.values import Outcome
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api91_alter_share_group_offsets import (
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    PartitionResult,
    TopicResult,
)
from fencepost.protocol.topics import TopicPartition

HIDDEN = Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def handle(
    node: Broker, request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    if not node.share_protocol:
        return AlterShareGroupOffsetsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    hidden = denied_topics(node, context, AclOperation.READ, [topic.topic_name for topic in request.topics])
    starts = {
        TopicPartition(topic.topic_name, one.partition_index): one.start_offset
        for topic in request.topics
        if topic.topic_name not in hidden
        for one in topic.partitions
    }
    try:
        outcomes = await node.groups.shares.partitions.alter_offsets(request.group_id, starts)
    except Refused as refusal:
        return AlterShareGroupOffsetsResponse(error_code=refusal.code, error_message=str(refusal))

    def result(topic: AlteredTopic) -> TopicResult:
        name = topic.topic_name
        known = node.metadata.image.topics_by_name.get(name)
        return TopicResult(
            topic_name=name,
            topic_id=bytes(16) if known is None or name in hidden else known.topic_id,
            partitions=[
                _partition(number, outcomes.get(TopicPartition(name, number), HIDDEN))
                for number in (one.partition_index for one in topic.partitions)
            ],
        )

    return AlterShareGroupOffsetsResponse(responses=[result(topic) for topic in request.topics])


def _partition(number: int, outcome: Outcome) -> PartitionResult:
    return PartitionResult(partition_index=number, error_code=outcome.error, error_message=outcome.message)
