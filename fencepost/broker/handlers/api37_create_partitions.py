"""CreatePartitions (37): add partitions to topics. All versions mean the same."""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.metering import limit_mutations
from fencepost.broker.ports import HasMetadata
from fencepost.coordinator.metadata.commands import MorePartitions
from fencepost.protocol.messages.api37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

STRICT_QUOTA_SINCE = 3


async def handle(
    node: HasMetadata, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Add the partitions in one append; the response waits until that is durable."""
    wanted = [
        MorePartitions(
            topic.name,
            topic.count,
            None
            if topic.assignments is None
            else tuple(tuple(assignment.broker_ids) for assignment in topic.assignments),
        )
        for topic in request.topics
    ]
    outcomes = await node.metadata.create_partitions(
        wanted, request.validate_only, limit_mutations(context, STRICT_QUOTA_SINCE)
    )
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
            for name, outcome in outcomes
        ]
    )
