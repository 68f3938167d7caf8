"""DeleteAcls (31): remove the access rules that match filters.

v1 brings resource patterns (KIP-290).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int8, Int16, Int32, RequestValue, ResponseValue, String, Value


class DeleteAclsFilter(Value):
    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(RequestValue["DeleteAclsResponse"], api=ApiKey.DELETE_ACLS):
    filters: list[DeleteAclsFilter] = []


class DeleteAclsMatchingAcl(Value):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Value):
    error_code: Int16 = 0
    error_message: String | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


class DeleteAclsResponse(ResponseValue, api=ApiKey.DELETE_ACLS):
    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []
