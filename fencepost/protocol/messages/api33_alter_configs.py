"""AlterConfigs (33): replace all settings of a topic or broker."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Field, Int8, Int16, Int32, Request, Response, String, Struct

AlterableConfig = Struct(
    "AlterableConfig",
    "name" / String,
    "value" / Field(String, nullable=0),
)

AlterConfigsResource = Struct(
    "AlterConfigsResource",
    "resource_type" / Int8,
    "resource_name" / String,
    "configs" / Array(AlterableConfig),
)

AlterConfigsRequest = Request(
    ApiKey.ALTER_CONFIGS,
    "resources" / Array(AlterConfigsResource),
    "validate_only" / Bool,
)

AlterConfigsResourceResponse = Struct(
    "AlterConfigsResourceResponse",
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "resource_type" / Int8,
    "resource_name" / String,
)

AlterConfigsResponse = Response(
    ApiKey.ALTER_CONFIGS,
    "throttle_time_ms" / Int32,
    "responses" / Array(AlterConfigsResourceResponse),
)
