"""ListPartitionReassignments (46): reassignments in progress (KIP-455). With one node there are none."""

from collections.abc import Iterable

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.coordinator.metadata.image import TopicImage
from fencepost.protocol.messages.api46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    node: Broker, request: ListPartitionReassignmentsRequest, _context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """As in Kafka, partitions without a reassignment, and unknown ones, are not in the answer."""
    topics = node.metadata.image.topics_by_name
    wanted: Iterable[tuple[str, Iterable[int]]] = ((name, range(topic.partitions)) for name, topic in topics.items())
    if request.topics is not None:
        wanted = ((topic.name, topic.partition_indexes) for topic in request.topics if topic.name in topics)
    found = [
        OngoingTopicReassignment(name=name, partitions=parts)
        for name, numbers in wanted
        if (parts := _ongoing(topics[name], numbers))
    ]
    return ListPartitionReassignmentsResponse(error_message=None, topics=found)


def _ongoing(topic: TopicImage, numbers: Iterable[int]) -> list[OngoingPartitionReassignment]:
    return [
        OngoingPartitionReassignment(
            partition_index=number,
            replicas=list(one.replicas),
            adding_replicas=list(one.adding_replicas),
            removing_replicas=list(one.removing_replicas),
        )
        for number in numbers
        if 0 <= number < topic.partitions
        and ((one := topic.assignment[number]).adding_replicas or one.removing_replicas)
    ]
