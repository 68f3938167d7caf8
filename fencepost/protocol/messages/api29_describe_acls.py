"""DescribeAcls (29): the access rules that match a filter.

v1 brings resource patterns (KIP-290).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int8, Int16, Int32, RequestValue, ResponseValue, String, Value


class DescribeAclsRequest(RequestValue["DescribeAclsResponse"], api=ApiKey.DESCRIBE_ACLS):
    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(Value):
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Value):
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    acls: list[AclDescription] = []


class DescribeAclsResponse(ResponseValue, api=ApiKey.DESCRIBE_ACLS):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    resources: list[DescribeAclsResource] = []
