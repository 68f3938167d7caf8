"""CreateAcls (30): add access rules.

v1 brings resource patterns (KIP-290).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Field, Int8, Int16, Int32, Request, Response, String, Struct

AclCreation = Struct(
    "AclCreation",
    "resource_type" / Int8,
    "resource_name" / String,
    "resource_pattern_type" / Field(Int8, default=3),
    "principal" / String,
    "host" / String,
    "operation" / Int8,
    "permission_type" / Int8,
)

CreateAclsRequest = Request(
    ApiKey.CREATE_ACLS,
    "creations" / Array(AclCreation),
)

AclCreationResult = Struct(
    "AclCreationResult",
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
)

CreateAclsResponse = Response(
    ApiKey.CREATE_ACLS,
    "throttle_time_ms" / Int32,
    "results" / Array(AclCreationResult),
)
