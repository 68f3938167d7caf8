"""ListConfigResources (74): names of resources that have settings.

v1 lists all kinds, v0 client metrics only (KIP-1142).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int8, Int16, Int32, RequestValue, ResponseValue, String, Value, since


class ListConfigResourcesRequest(RequestValue["ListConfigResourcesResponse"], api=ApiKey.LIST_CONFIG_RESOURCES):
    resource_types: list[Int8] = since(1)


class ConfigResource(Value):
    resource_name: String = ""
    resource_type: Int8 = since(1, default=16)


class ListConfigResourcesResponse(ResponseValue, api=ApiKey.LIST_CONFIG_RESOURCES):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []
