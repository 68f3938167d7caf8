"""FindCoordinator (10): which broker looks after a group or a transactional id; here it is always this one.

v0-6 are served: v1 brings transactional ids, v4 many keys at once (KIP-699), v5 TRANSACTION_ABORTABLE, v6 the key type
of share groups, which are not served: asked for, they are refused as by a Kafka that has them switched off.
"""

from typing import TYPE_CHECKING, Any

from fencepost.broker.context import RequestContext
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api10_find_coordinator import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node

GROUP, TRANSACTION = 0, 1
BATCH_SINCE = 4
NO_NODE = -1


async def handle(node: "Node", request: Any, context: RequestContext) -> Any:
    """Answer each key with this node's address."""
    known = request.key_type in (GROUP, TRANSACTION)
    error = ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST
    message = None if known else f"Key type {request.key_type} has no coordinator here"
    node_id = node.config.node_id if known else NO_NODE
    host, port = context.listener if known else ("", NO_NODE)
    if context.api_version < BATCH_SINCE:
        return FindCoordinatorResponse(error_code=error, error_message=message, node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=message)
            for key in request.coordinator_keys
        ]
    )
