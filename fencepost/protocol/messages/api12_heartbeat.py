"""Heartbeat (12): a member is alive and hears of a rebalance.

v3 brings static members (KIP-345).
"""

from fencepost.protocol.schema import Int16, Int32, Request, Response, Since, String

VERSIONS = (0, 4)
FLEXIBLE = 4

HeartbeatRequest = Request(
    12,
    "HeartbeatRequest",
    VERSIONS,
    FLEXIBLE,
    "group_id" / String,
    "generation_id" / Int32,
    "member_id" / String,
    "group_instance_id" / Since(3, String, default=None, nullable=3),
)

HeartbeatResponse = Response(
    12,
    "HeartbeatResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Since(1, Int32),
    "error_code" / Int16,
)
