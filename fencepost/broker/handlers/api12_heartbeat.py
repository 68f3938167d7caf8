"""Heartbeat (12): a member is alive and hears of a rebalance.

v0-4 are served; v3 brings static members (KIP-345).
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import HasGroups
from fencepost.protocol.messages.api12_heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(node: HasGroups, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Start the member's session over."""
    error = node.groups.classic.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=error)
