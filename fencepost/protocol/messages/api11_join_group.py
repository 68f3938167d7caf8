"""JoinGroup (11): become a member of a group and take part in its next generation.

v1 brings the rebalance timeout, v4 MEMBER_ID_REQUIRED (KIP-394), v5 static members (KIP-345), v7 the protocol type,
v8 a reason (KIP-800), v9 an assignment the leader may skip (KIP-814).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Bytes, Field, Int16, Int32, Request, Response, Since, String, Struct

JoinGroupRequestProtocol = Struct(
    "JoinGroupRequestProtocol",
    "name" / String,
    "metadata" / Bytes,
)

JoinGroupRequest = Request(
    ApiKey.JOIN_GROUP,
    "group_id" / String,
    "session_timeout_ms" / Int32,
    "rebalance_timeout_ms" / Since(1, Int32, default=-1),
    "member_id" / String,
    "group_instance_id" / Since(5, String, default=None, nullable=5),
    "protocol_type" / String,
    "protocols" / Array(JoinGroupRequestProtocol),
    "reason" / Since(8, String, default=None, nullable=8),
)

JoinGroupResponseMember = Struct(
    "JoinGroupResponseMember",
    "member_id" / String,
    "group_instance_id" / Since(5, String, default=None, nullable=5),
    "metadata" / Bytes,
)

JoinGroupResponse = Response(
    ApiKey.JOIN_GROUP,
    "throttle_time_ms" / Since(2, Int32),
    "error_code" / Int16,
    "generation_id" / Field(Int32, default=-1),
    "protocol_type" / Since(7, String, default=None, nullable=7),
    "protocol_name" / Field(String, nullable=7),
    "leader" / String,
    "skip_assignment" / Since(9, Bool),
    "member_id" / String,
    "members" / Array(JoinGroupResponseMember),
)
