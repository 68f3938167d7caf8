"""SyncGroup (14): the leader sends the assignments, every member receives its own.

v3 brings static members (KIP-345), v5 protocol type and name (KIP-559).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bytes, Int16, Int32, RequestValue, ResponseValue, String, Value, since


class SyncGroupRequestAssignment(Value):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(RequestValue["SyncGroupResponse"], api=ApiKey.SYNC_GROUP):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: String | None = since(3, default=None)
    protocol_type: String | None = since(5, default=None)
    protocol_name: String | None = since(5, default=None)
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(ResponseValue, api=ApiKey.SYNC_GROUP):
    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = 0
    protocol_type: String | None = since(5, default=None)
    protocol_name: String | None = since(5, default=None)
    assignment: Bytes = b""
