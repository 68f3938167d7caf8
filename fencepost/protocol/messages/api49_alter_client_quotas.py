"""AlterClientQuotas (49): set and remove quotas of users, client ids and addresses (KIP-546)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Float64, Int16, Int32, RequestValue, ResponseValue, String, Value


class EntityData(Value):
    entity_type: String = ""
    entity_name: String | None = ""


class OpData(Value):
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class EntryData(Value):
    entity: list[EntityData] = []
    ops: list[OpData] = []


class AlterClientQuotasRequest(RequestValue["AlterClientQuotasResponse"], api=ApiKey.ALTER_CLIENT_QUOTAS):
    entries: list[EntryData] = []
    validate_only: Bool = False


class EntryDataResponse(Value):
    error_code: Int16 = 0
    error_message: String | None = ""
    entity: list[EntityData] = []


class AlterClientQuotasResponse(ResponseValue, api=ApiKey.ALTER_CLIENT_QUOTAS):
    throttle_time_ms: Int32 = 0
    entries: list[EntryDataResponse] = []
