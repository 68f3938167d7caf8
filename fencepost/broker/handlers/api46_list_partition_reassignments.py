"""ListPartitionReassignments (46): replicas on the move (KIP-455). With one node none ever is."""

from fencepost.broker.network.context import RequestContext
from fencepost.protocol.messages.api46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(
    _node: object, _request: ListPartitionReassignmentsRequest, _context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """An empty list, as Kafka answers for partitions that stay, and for such as do not exist."""
    return ListPartitionReassignmentsResponse(error_message=None, topics=[])
