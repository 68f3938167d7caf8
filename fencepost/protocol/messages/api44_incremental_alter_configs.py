"""IncrementalAlterConfigs (44): set, delete, append to or subtract from single settings (KIP-339)."""

from fencepost.protocol.schema import Array, Bool, Field, Int8, Int16, Int32, Request, Response, String, Struct

VERSIONS = (0, 1)
FLEXIBLE = 1

AlterableConfig = Struct(
    "AlterableConfig",
    "name" / String,
    "config_operation" / Int8,
    "value" / Field(String, nullable=0),
)

AlterConfigsResource = Struct(
    "AlterConfigsResource",
    "resource_type" / Int8,
    "resource_name" / String,
    "configs" / Array(AlterableConfig),
)

IncrementalAlterConfigsRequest = Request(
    44,
    "IncrementalAlterConfigsRequest",
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

IncrementalAlterConfigsResponse = Response(
    44,
    "IncrementalAlterConfigsResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Int32,
    "responses" / Array(AlterConfigsResourceResponse),
)
