"""DescribeClientQuotas (48): quotas of users, client ids and addresses (KIP-546)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Field, Float64, Int8, Int16, Int32, Request, Response, String, Struct

ComponentData = Struct(
    "ComponentData",
    "entity_type" / String,
    "match_type" / Int8,
    "match" / Field(String, nullable=0),
)

DescribeClientQuotasRequest = Request(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    "components" / Array(ComponentData),
    "strict" / Bool,
)

EntityData = Struct(
    "EntityData",
    "entity_type" / String,
    "entity_name" / Field(String, nullable=0),
)

ValueData = Struct(
    "ValueData",
    "key" / String,
    "value" / Float64,
)

EntryData = Struct(
    "EntryData",
    "entity" / Array(EntityData),
    "values" / Array(ValueData),
)

DescribeClientQuotasResponse = Response(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "entries" / Field(Array(EntryData), nullable=0),
)
