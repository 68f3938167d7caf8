"""DescribeConfigs (32): settings of topics and brokers with their sources.

v1 brings synonyms, v3 types and documentation (KIP-569).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Array,
    Bool,
    Field,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    Since,
    String,
    Struct,
    Until,
)

DescribeConfigsResource = Struct(
    "DescribeConfigsResource",
    "resource_type" / Int8,
    "resource_name" / String,
    "configuration_keys" / Field(Array(String), nullable=0),
)

DescribeConfigsRequest = Request(
    ApiKey.DESCRIBE_CONFIGS,
    "resources" / Array(DescribeConfigsResource),
    "include_synonyms" / Since(1, Bool),
    "include_documentation" / Since(3, Bool),
)

DescribeConfigsSynonym = Struct(
    "DescribeConfigsSynonym",
    "name" / Since(1, String),
    "value" / Since(1, String, nullable=0),
    "source" / Since(1, Int8),
)

DescribeConfigsResourceResult = Struct(
    "DescribeConfigsResourceResult",
    "name" / String,
    "value" / Field(String, nullable=0),
    "read_only" / Bool,
    "is_default" / Until(0, Bool),
    "config_source" / Since(1, Int8, default=-1),
    "is_sensitive" / Bool,
    "synonyms" / Since(1, Array(DescribeConfigsSynonym)),
    "config_type" / Since(3, Int8),
    "documentation" / Since(3, String, nullable=0),
)

DescribeConfigsResult = Struct(
    "DescribeConfigsResult",
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "resource_type" / Int8,
    "resource_name" / String,
    "configs" / Array(DescribeConfigsResourceResult),
)

DescribeConfigsResponse = Response(
    ApiKey.DESCRIBE_CONFIGS,
    "throttle_time_ms" / Int32,
    "results" / Array(DescribeConfigsResult),
)
