"""SyncGroup (14): the leader hands out the assignments, everybody receives theirs.

v0-5 are served. v3 brings static members (KIP-345), v5 names the protocol in both directions (KIP-559). The answer
of a follower waits for the leader's request.
"""

from typing import TYPE_CHECKING, Any

from fencepost.broker.context import RequestContext
from fencepost.broker.later import later
from fencepost.coordinator.group.turn import Sync, SyncReply
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api14_sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node

PROTOCOL_SINCE = 5


def handle(node: "Node", request: Any, context: RequestContext) -> Any:
    """Give the member its assignment."""
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= PROTOCOL_SINCE and not names_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    command = Sync(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        tuple((assignment.member_id, assignment.assignment) for assignment in request.assignments),
    )
    return later(node.groups.ask_sync(command), _response)


def _response(reply: SyncReply) -> Any:
    return SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )
