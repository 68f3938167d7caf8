"""Heartbeat (12): keep a member's session alive, and report a rebalance to it.

v0-4 are served; v3 brings static members (KIP-345).
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.protocol.messages.api12_heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(node: Broker, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    error = node.groups.classic.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=error)
