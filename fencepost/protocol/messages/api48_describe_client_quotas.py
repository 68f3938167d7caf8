"""DescribeClientQuotas (48): quotas of users, client ids and addresses (KIP-546)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Float64, Int8, Int16, Int32, RequestValue, ResponseValue, String, Value


class ComponentData(Value):
    entity_type: String = ""
    match_type: Int8 = 0
    match: String | None = ""


class DescribeClientQuotasRequest(RequestValue["DescribeClientQuotasResponse"], api=ApiKey.DESCRIBE_CLIENT_QUOTAS):
    components: list[ComponentData] = []
    strict: Bool = False


class EntityData(Value):
    entity_type: String = ""
    entity_name: String | None = ""


class ValueData(Value):
    key: String = ""
    value: Float64 = 0.0


class EntryData(Value):
    entity: list[EntityData] = []
    values: list[ValueData] = []


class DescribeClientQuotasResponse(ResponseValue, api=ApiKey.DESCRIBE_CLIENT_QUOTAS):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    entries: list[EntryData] | None = []
