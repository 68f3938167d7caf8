"""DescribeAcls (29): the access rules that match a filter.

v1 brings resource patterns (KIP-290).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Field, Int8, Int16, Int32, Request, Response, String, Struct

DescribeAclsRequest = Request(
    ApiKey.DESCRIBE_ACLS,
    "resource_type_filter" / Int8,
    "resource_name_filter" / Field(String, nullable=0),
    "pattern_type_filter" / Field(Int8, default=3),
    "principal_filter" / Field(String, nullable=0),
    "host_filter" / Field(String, nullable=0),
    "operation" / Int8,
    "permission_type" / Int8,
)

AclDescription = Struct(
    "AclDescription",
    "principal" / String,
    "host" / String,
    "operation" / Int8,
    "permission_type" / Int8,
)

DescribeAclsResource = Struct(
    "DescribeAclsResource",
    "resource_type" / Int8,
    "resource_name" / String,
    "pattern_type" / Field(Int8, default=3),
    "acls" / Array(AclDescription),
)

DescribeAclsResponse = Response(
    ApiKey.DESCRIBE_ACLS,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "resources" / Array(DescribeAclsResource),
)
