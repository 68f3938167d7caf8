"""UnregisterBroker (64): remove a broker that will not return (KIP-866)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, RequestValue, ResponseValue, String


class UnregisterBrokerRequest(RequestValue["UnregisterBrokerResponse"], api=ApiKey.UNREGISTER_BROKER):
    broker_id: Int32 = 0


class UnregisterBrokerResponse(ResponseValue, api=ApiKey.UNREGISTER_BROKER):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
