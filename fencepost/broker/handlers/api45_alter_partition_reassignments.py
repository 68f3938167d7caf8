"""AlterPartitionReassignments (45): begin or cancel a reassignment of replicas (KIP-455).

v1 lets the client forbid a change of the replication factor (KIP-860); the response repeats that flag. With one node a
partition can only be assigned to this node, which completes at once.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.coordinator.metadata.commands import DONE, Outcome
from fencepost.coordinator.metadata.controller import replicas_problem
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

FACTOR_SINCE = 1


def handle(
    node: Broker, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    allowed = request.allow_replication_factor_change if context.api_version >= FACTOR_SINCE else True
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _answer(part.partition_index, _outcome(node, topic.name, part)) for part in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _answer(number: int, outcome: Outcome) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(partition_index=number, error_code=outcome.code, error_message=outcome.message)


def _outcome(node: Broker, name: str, part: ReassignablePartition) -> Outcome:
    topic = node.metadata.image.topics_by_name.get(name)
    if topic is None:
        return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    number = part.partition_index
    if not 0 <= number < topic.partitions:
        return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}.")
    if part.replicas is None:
        return Outcome(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    return _move_problem(node, topic.assignment[number].leader, tuple(part.replicas)) or DONE


def _move_problem(node: Broker, leader: int, replicas: tuple[int, ...]) -> Outcome | None:
    """Why a partition cannot be assigned to these replicas."""
    own = node.config.node_id if not node.place.node_ids else leader
    return replicas_problem(replicas, (own,))
