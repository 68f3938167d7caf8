"""AlterClientQuotas (49): set and remove quotas of users, client ids and addresses (KIP-546)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Field, Float64, Int16, Int32, Request, Response, String, Struct

EntityData = Struct(
    "EntityData",
    "entity_type" / String,
    "entity_name" / Field(String, nullable=0),
)

OpData = Struct(
    "OpData",
    "key" / String,
    "value" / Float64,
    "remove" / Bool,
)

EntryData = Struct(
    "EntryData",
    "entity" / Array(EntityData),
    "ops" / Array(OpData),
)

AlterClientQuotasRequest = Request(
    ApiKey.ALTER_CLIENT_QUOTAS,
    "entries" / Array(EntryData),
    "validate_only" / Bool,
)

EntryDataResponse = Struct(
    "EntryDataResponse",
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "entity" / Array(EntityData),
)

AlterClientQuotasResponse = Response(
    ApiKey.ALTER_CLIENT_QUOTAS,
    "throttle_time_ms" / Int32,
    "entries" / Array(EntryDataResponse),
)
