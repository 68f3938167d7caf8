"""ListConfigResources (74): names of resources that have settings.

v1 lists all kinds, v0 client metrics only (KIP-1142).
"""

from fencepost.protocol.schema import Array, Int8, Int16, Int32, Request, Response, Since, String, Struct

VERSIONS = (0, 1)
FLEXIBLE = 0

ListConfigResourcesRequest = Request(
    74,
    "ListConfigResourcesRequest",
    VERSIONS,
    FLEXIBLE,
    "resource_types" / Since(1, Array(Int8)),
)

ConfigResource = Struct(
    "ConfigResource",
    "resource_name" / String,
    "resource_type" / Since(1, Int8, default=16),
)

ListConfigResourcesResponse = Response(
    74,
    "ListConfigResourcesResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "config_resources" / Array(ConfigResource),
)
