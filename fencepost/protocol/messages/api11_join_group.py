"""JoinGroup (11): become a member of a group and take part in its next generation.

v1 brings the rebalance timeout, v4 MEMBER_ID_REQUIRED (KIP-394), v5 static members (KIP-345), v7 the protocol type,
v8 a reason (KIP-800), v9 an assignment the leader may skip (KIP-814).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Bool,
    Bytes,
    Int16,
    Int32,
    RequestValue,
    ResponseValue,
    String,
    Value,
    field,
    since,
)


class JoinGroupRequestProtocol(Value):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(RequestValue["JoinGroupResponse"], api=ApiKey.JOIN_GROUP):
    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Int32 = since(1, default=-1)
    member_id: String = ""
    group_instance_id: String | None = since(5, default=None)
    protocol_type: String = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: String | None = since(8, default=None)


class JoinGroupResponseMember(Value):
    member_id: String = ""
    group_instance_id: String | None = since(5, default=None)
    metadata: Bytes = b""


class JoinGroupResponse(ResponseValue, api=ApiKey.JOIN_GROUP):
    throttle_time_ms: Int32 = since(2)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: String | None = since(7, default=None)
    protocol_name: String | None = field(default="", nullable=7)
    leader: String = ""
    skip_assignment: Bool = since(9)
    member_id: String = ""
    members: list[JoinGroupResponseMember] = []
