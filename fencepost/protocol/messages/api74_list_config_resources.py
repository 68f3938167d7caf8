"""ListConfigResources (74): names of resources that have settings.

v1 lists all kinds, v0 client metrics only (KIP-1142).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Int8, Int16, Int32, Request, Response, Since, String, Struct

ListConfigResourcesRequest = Request(
    ApiKey.LIST_CONFIG_RESOURCES,
    "resource_types" / Since(1, Array(Int8)),
)

ConfigResource = Struct(
    "ConfigResource",
    "resource_name" / String,
    "resource_type" / Since(1, Int8, default=16),
)

ListConfigResourcesResponse = Response(
    ApiKey.LIST_CONFIG_RESOURCES,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "config_resources" / Array(ConfigResource),
)
