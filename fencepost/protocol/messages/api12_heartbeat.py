"""Heartbeat (12): a member keeps its session alive and learns of a rebalance.

v3 brings static members (KIP-345).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, Request, Response, Since, String

HeartbeatRequest = Request(
    ApiKey.HEARTBEAT,
    "group_id" / String,
    "generation_id" / Int32,
    "member_id" / String,
    "group_instance_id" / Since(3, String, default=None, nullable=3),
)

HeartbeatResponse = Response(
    ApiKey.HEARTBEAT,
    "throttle_time_ms" / Since(1, Int32),
    "error_code" / Int16,
)
