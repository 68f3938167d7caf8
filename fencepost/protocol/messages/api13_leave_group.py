"""LeaveGroup (13): members leave a group.

v3 lets several leave at once (KIP-345), v5 brings a reason (KIP-800).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Int16, Int32, Request, Response, Since, String, Struct, Until

MemberIdentity = Struct(
    "MemberIdentity",
    "member_id" / Since(3, String),
    "group_instance_id" / Since(3, String, default=None, nullable=3),
    "reason" / Since(5, String, default=None, nullable=5),
)

LeaveGroupRequest = Request(
    ApiKey.LEAVE_GROUP,
    "group_id" / String,
    "member_id" / Until(2, String),
    "members" / Since(3, Array(MemberIdentity)),
)

MemberResponse = Struct(
    "MemberResponse",
    "member_id" / Since(3, String),
    "group_instance_id" / Since(3, String, nullable=3),
    "error_code" / Since(3, Int16),
)

LeaveGroupResponse = Response(
    ApiKey.LEAVE_GROUP,
    "throttle_time_ms" / Since(1, Int32),
    "error_code" / Int16,
    "members" / Since(3, Array(MemberResponse)),
)
