"""IncrementalAlterConfigs (44): set, delete, append to or subtract from single settings (KIP-339)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int8, Int16, Int32, RequestValue, ResponseValue, String, Value


class AlterableConfig(Value):
    name: String = ""
    config_operation: Int8 = 0
    value: String | None = ""


class AlterConfigsResource(Value):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterableConfig] = []


class IncrementalAlterConfigsRequest(
    RequestValue["IncrementalAlterConfigsResponse"], api=ApiKey.INCREMENTAL_ALTER_CONFIGS
):
    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Value):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(ResponseValue, api=ApiKey.INCREMENTAL_ALTER_CONFIGS):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
