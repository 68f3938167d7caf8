"""UnregisterBroker (64): forget a broker that will not come back (KIP-866)."""

from fencepost.protocol.schema import Field, Int16, Int32, Request, Response, String

VERSIONS = (0, 0)
FLEXIBLE = 0

UnregisterBrokerRequest = Request(
    64,
    "UnregisterBrokerRequest",
    VERSIONS,
    FLEXIBLE,
    "broker_id" / Int32,
)

UnregisterBrokerResponse = Response(
    64,
    "UnregisterBrokerResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
)
