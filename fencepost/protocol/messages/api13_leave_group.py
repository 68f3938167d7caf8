"""LeaveGroup (13): members leave a group.

v3 lets several leave at once (KIP-345), v5 brings a reason (KIP-800).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, RequestValue, ResponseValue, String, Value, since, until


class MemberIdentity(Value):
    member_id: String = since(3)
    group_instance_id: String | None = since(3, default=None)
    reason: String | None = since(5, default=None)


class LeaveGroupRequest(RequestValue["LeaveGroupResponse"], api=ApiKey.LEAVE_GROUP):
    group_id: String = ""
    member_id: String = until(2)
    members: list[MemberIdentity] = since(3)


class MemberResponse(Value):
    member_id: String = since(3)
    group_instance_id: String | None = since(3, default="")
    error_code: Int16 = since(3)


class LeaveGroupResponse(ResponseValue, api=ApiKey.LEAVE_GROUP):
    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = 0
    members: list[MemberResponse] = since(3)
