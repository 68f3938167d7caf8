"""AlterConfigs (33): replace all settings of a topic or broker."""

from fencepost.protocol.schema import Array, Bool, Field, Int8, Int16, Int32, Request, Response, String, Struct

VERSIONS = (0, 2)
FLEXIBLE = 2

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
    33,
    "AlterConfigsRequest",
    VERSIONS,
    FLEXIBLE,
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
    33,
    "AlterConfigsResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Int32,
    "responses" / Array(AlterConfigsResourceResponse),
)
