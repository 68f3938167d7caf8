"""Heartbeat (12): a member keeps its session alive and learns of a rebalance.

v3 brings static members (KIP-345).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, RequestValue, ResponseValue, String, since


class HeartbeatRequest(RequestValue["HeartbeatResponse"], api=ApiKey.HEARTBEAT):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: String | None = since(3, default=None)


class HeartbeatResponse(ResponseValue, api=ApiKey.HEARTBEAT):
    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = 0
