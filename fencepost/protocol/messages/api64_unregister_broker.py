"""UnregisterBroker (64): remove a broker that will not return (KIP-866)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Field, Int16, Int32, Request, Response, String

UnregisterBrokerRequest = Request(
    ApiKey.UNREGISTER_BROKER,
    "broker_id" / Int32,
)

UnregisterBrokerResponse = Response(
    ApiKey.UNREGISTER_BROKER,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
)
