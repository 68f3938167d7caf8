"""JoinGroup (11): become a member of a group and take part in its next generation.

v0-9 are served. v0 has no rebalance timeout (the session timeout stands in for it), v4 sends newcomers back for a
member id first (KIP-394), v5 brings static members (KIP-345), v7 the protocol type and a nullable protocol name, v8 a
reason for the log (KIP-800), v9 lets a returning leader skip the assignment (KIP-814). The answer waits for the other
members.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from fencepost.broker.context import RequestContext
from fencepost.broker.later import later
from fencepost.coordinator.group.turn import Join, JoinReply
from fencepost.protocol.messages.api11_join_group import JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    from fencepost.broker.node import Node

REBALANCE_TIMEOUT_SINCE = 1
MEMBER_ID_REQUIRED_SINCE = 4
NULLABLE_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


def handle(node: "Node", request: Any, context: RequestContext) -> Any:
    """Join, and answer once the group has its next generation."""
    version = context.api_version
    timed = version >= REBALANCE_TIMEOUT_SINCE
    command = Join(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        context.client_id or "",
        f"/{context.client_host}",
        request.session_timeout_ms,
        request.rebalance_timeout_ms if timed else request.session_timeout_ms,
        request.protocol_type,
        tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        member_id_required=version >= MEMBER_ID_REQUIRED_SINCE,
        can_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE,
        reason=request.reason,
    )
    return later(node.groups.ask_join(command), partial(_response, version))


def _response(version: int, reply: JoinReply) -> Any:
    no_protocol = None if version >= NULLABLE_PROTOCOL_SINCE else ""
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol if reply.protocol is not None else no_protocol,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in reply.members
        ],
    )
