"""CreatePartitions (37): add partitions to topics. All versions mean the same."""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.metering import limit_mutations
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics
from fencepost.coordinator.metadata.commands import MorePartitions, Outcome
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

STRICT_QUOTA_SINCE = 3


async def handle(node: Broker, request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    """Add the partitions in one append; the response waits until that is durable."""
    refused = denied_topics(node, context, AclOperation.ALTER, (topic.name for topic in request.topics))
    wanted = [
        MorePartitions(
            topic.name,
            topic.count,
            None
            if topic.assignments is None
            else tuple(tuple(assignment.broker_ids) for assignment in topic.assignments),
        )
        for topic in request.topics
        if topic.name not in refused
    ]
    outcomes = await node.metadata.create_partitions(
        wanted, request.validate_only, limit_mutations(context, STRICT_QUOTA_SINCE)
    )
    outcomes = [*outcomes, *((name, Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED)) for name in refused)]
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
            for name, outcome in outcomes
        ]
    )
