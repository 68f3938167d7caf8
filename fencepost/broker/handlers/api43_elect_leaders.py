"""ElectLeaders (43): elect the preferred replica, or any live replica (KIP-183, KIP-460).

v1 has the election type and an error for the whole response. The only node leads every partition and is its preferred
replica: an election is never needed.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.coordinator.metadata.commands import Outcome
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

KIND_SINCE = 1
PREFERRED, UNCLEAN = 0, 1


def handle(node: Broker, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Return for each partition why no election took place; for all partitions, only topic names (as Kafka)."""
    if context.api_version >= KIND_SINCE and request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    if request.topic_partitions is None:
        names = node.metadata.image.topics_by_name
        return ElectLeadersResponse(
            replica_election_results=[ReplicaElectionResult(topic=name, partition_result=[]) for name in names]
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic, partition_result=[_result(node, topic.topic, number) for number in topic.partitions]
            )
            for topic in request.topic_partitions
        ]
    )


def _result(node: Broker, name: str, number: int) -> PartitionResult:
    topic = node.metadata.image.topics_by_name.get(name)
    if topic is None:
        outcome = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    elif not 0 <= number < topic.partitions:
        outcome = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}")
    else:
        outcome = Outcome(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    return PartitionResult(partition_id=number, error_code=outcome.code, error_message=outcome.message)
