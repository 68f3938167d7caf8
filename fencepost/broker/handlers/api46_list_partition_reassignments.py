"""ListPartitionReassignments (46): replicas on the move (KIP-455). With one node none ever is."""

from typing import TYPE_CHECKING, Any

from fencepost.broker.network.context import RequestContext
from fencepost.protocol.messages.api46_list_partition_reassignments import ListPartitionReassignmentsResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node


def handle(_node: "Node", _request: Any, _context: RequestContext) -> Any:
    """An empty list, as Kafka answers for partitions that stay, and for such as do not exist."""
    return ListPartitionReassignmentsResponse(error_message=None, topics=[])
