"""CreateAcls (30): add access rules.

v1 brings resource patterns (KIP-290).
"""

from fencepost.protocol.schema import Array, Field, Int8, Int16, Int32, Request, Response, String, Struct

VERSIONS = (1, 3)
FLEXIBLE = 2

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
    30,
    "CreateAclsRequest",
    VERSIONS,
    FLEXIBLE,
    "creations" / Array(AclCreation),
)

AclCreationResult = Struct(
    "AclCreationResult",
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
)

CreateAclsResponse = Response(
    30,
    "CreateAclsResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Int32,
    "results" / Array(AclCreationResult),
)
