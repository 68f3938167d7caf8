"""ListPartitionReassignments (46): reassignments in progress (KIP-455). With one node there are none."""

from fencepost.broker.network.context import RequestContext
from fencepost.protocol.messages.api46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(
    _node: object, _request: ListPartitionReassignmentsRequest, _context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """An empty list, as Kafka returns for partitions without a reassignment and for unknown partitions."""
    return ListPartitionReassignmentsResponse(error_message=None, topics=[])
