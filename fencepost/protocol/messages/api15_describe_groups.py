"""DescribeGroups (15): members, state and assignments of classic groups.

v3 brings authorized operations, v4 static members, v6 an error message and GROUP_ID_NOT_FOUND.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Bytes, Int16, Int32, Request, Response, Since, String, Struct

DescribeGroupsRequest = Request(
    ApiKey.DESCRIBE_GROUPS,
    "groups" / Array(String),
    "include_authorized_operations" / Since(3, Bool),
)

DescribedGroupMember = Struct(
    "DescribedGroupMember",
    "member_id" / String,
    "group_instance_id" / Since(4, String, default=None, nullable=4),
    "client_id" / String,
    "client_host" / String,
    "member_metadata" / Bytes,
    "member_assignment" / Bytes,
)

DescribedGroup = Struct(
    "DescribedGroup",
    "error_code" / Int16,
    "error_message" / Since(6, String, default=None, nullable=6),
    "group_id" / String,
    "group_state" / String,
    "protocol_type" / String,
    "protocol_data" / String,
    "members" / Array(DescribedGroupMember),
    "authorized_operations" / Since(3, Int32, default=-2147483648),
)

DescribeGroupsResponse = Response(
    ApiKey.DESCRIBE_GROUPS,
    "throttle_time_ms" / Since(1, Int32),
    "groups" / Array(DescribedGroup),
)
