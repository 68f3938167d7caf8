"""IncrementalAlterConfigs (44): set, delete, append to or subtract from single settings (KIP-339)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Field, Int8, Int16, Int32, Request, Response, String, Struct

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
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
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
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    "throttle_time_ms" / Int32,
    "responses" / Array(AlterConfigsResourceResponse),
)
