"""CreatePartitions (37): topics grow, they never shrink. All versions mean the same."""

from typing import TYPE_CHECKING, Any

from fencepost.broker.network.context import RequestContext
from fencepost.coordinator.metadata.commands import MorePartitions
from fencepost.protocol.messages.api37_create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult

if TYPE_CHECKING:
    from fencepost.broker.node import Node


async def handle(node: "Node", request: Any, context: RequestContext) -> Any:
    """Grow what can be grown, together; the answer leaves once that is durable."""
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
    outcomes = await node.metadata.create_partitions(wanted, request.validate_only)
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
            for name, outcome in outcomes
        ]
    )
