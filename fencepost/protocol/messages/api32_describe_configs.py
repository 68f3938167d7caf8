"""DescribeConfigs (32): settings of topics and brokers with their sources.

v1 brings synonyms, v3 types and documentation (KIP-569).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int8, Int16, Int32, RequestValue, ResponseValue, String, Value, since, until


class DescribeConfigsResource(Value):
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: list[String] | None = []


class DescribeConfigsRequest(RequestValue["DescribeConfigsResponse"], api=ApiKey.DESCRIBE_CONFIGS):
    resources: list[DescribeConfigsResource] = []
    include_synonyms: Bool = since(1)
    include_documentation: Bool = since(3)


class DescribeConfigsSynonym(Value):
    name: String = since(1)
    value: String | None = since(1, default="")
    source: Int8 = since(1)


class DescribeConfigsResourceResult(Value):
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    is_default: Bool = until(0)
    config_source: Int8 = since(1, default=-1)
    is_sensitive: Bool = False
    synonyms: list[DescribeConfigsSynonym] = since(1)
    config_type: Int8 = since(3)
    documentation: String | None = since(3, default="")


class DescribeConfigsResult(Value):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResponse(ResponseValue, api=ApiKey.DESCRIBE_CONFIGS):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []
