"""DescribeGroups (15): members, state and assignments of classic groups.

v3 brings authorized operations, v4 static members, v6 an error message and GROUP_ID_NOT_FOUND.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Bytes, Int16, Int32, RequestValue, ResponseValue, String, Value, since


class DescribeGroupsRequest(RequestValue["DescribeGroupsResponse"], api=ApiKey.DESCRIBE_GROUPS):
    groups: list[String] = []
    include_authorized_operations: Bool = since(3)


class DescribedGroupMember(Value):
    member_id: String = ""
    group_instance_id: String | None = since(4, default=None)
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Value):
    error_code: Int16 = 0
    error_message: String | None = since(6, default=None)
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Int32 = since(3, default=-2147483648)


class DescribeGroupsResponse(ResponseValue, api=ApiKey.DESCRIBE_GROUPS):
    throttle_time_ms: Int32 = since(1)
    groups: list[DescribedGroup] = []
