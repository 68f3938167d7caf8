"""DeleteAcls (31): remove the access rules that match filters.

v1 brings resource patterns (KIP-290).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Field, Int8, Int16, Int32, Request, Response, String, Struct

DeleteAclsFilter = Struct(
    "DeleteAclsFilter",
    "resource_type_filter" / Int8,
    "resource_name_filter" / Field(String, nullable=0),
    "pattern_type_filter" / Field(Int8, default=3),
    "principal_filter" / Field(String, nullable=0),
    "host_filter" / Field(String, nullable=0),
    "operation" / Int8,
    "permission_type" / Int8,
)

DeleteAclsRequest = Request(
    ApiKey.DELETE_ACLS,
    "filters" / Array(DeleteAclsFilter),
)

DeleteAclsMatchingAcl = Struct(
    "DeleteAclsMatchingAcl",
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "resource_type" / Int8,
    "resource_name" / String,
    "pattern_type" / Field(Int8, default=3),
    "principal" / String,
    "host" / String,
    "operation" / Int8,
    "permission_type" / Int8,
)

DeleteAclsFilterResult = Struct(
    "DeleteAclsFilterResult",
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "matching_acls" / Array(DeleteAclsMatchingAcl),
)

DeleteAclsResponse = Response(
    ApiKey.DELETE_ACLS,
    "throttle_time_ms" / Int32,
    "filter_results" / Array(DeleteAclsFilterResult),
)
