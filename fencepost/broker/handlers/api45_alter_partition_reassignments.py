"""AlterPartitionReassignments (45): begin or cancel a reassignment of replicas (KIP-455).

v1 lets the client forbid a change of the replication factor (KIP-860); the response repeats that flag. A partition has
one replica. On several cores it moves to another one; elsewhere it can only be assigned to its broker, which completes
at once.
"""

from collections.abc import Sequence

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Response
from fencepost.broker.ports import Broker
from fencepost.broker.security.principal import CLUSTER
from fencepost.coordinator.metadata.commands import Outcome
from fencepost.coordinator.metadata.reassignments import HandedOver, Reassignment, reassign
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from fencepost.protocol.topics import TopicPartition

FACTOR_SINCE = 1


async def handle(node: Broker, request: AlterPartitionReassignmentsRequest, context: RequestContext) -> Response:
    allowed = request.allow_replication_factor_change if context.api_version >= FACTOR_SINCE else True
    if request.cores >= 0:
        problem = await node.place.change_cores(request.cores)
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=allowed,
            error_code=ErrorCode.NONE if problem is None else ErrorCode.INVALID_REQUEST,
            error_message=problem,
        )
    by_broker = context.session.principal == CLUSTER
    wanted = [_wanted(topic.name, part, by_broker) for topic in request.topics for part in topic.partitions]
    outcomes = iter(await _outcomes(node, wanted))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_answer(part.partition_index, next(outcomes)) for part in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _wanted(name: str, part: ReassignablePartition, by_broker: bool) -> Reassignment | HandedOver:
    tp = TopicPartition(name, part.partition_index)
    if by_broker and part.partition_epoch >= 0:
        return HandedOver(tp, part.topic_id, part.partition_epoch)
    return Reassignment(tp, None if part.replicas is None else tuple(part.replicas))


async def _outcomes(node: Broker, wanted: Sequence[Reassignment | HandedOver]) -> list[Outcome]:
    if node.place.node_ids:
        return await node.metadata.reassign(wanted)
    return reassign(node.metadata.image, wanted, (node.config.node_id,)).reply


def _answer(number: int, outcome: Outcome) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(partition_index=number, error_code=outcome.code, error_message=outcome.message)
