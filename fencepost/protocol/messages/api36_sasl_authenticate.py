"""SaslAuthenticate (36): the exchange of the chosen mechanism."""

from fencepost.protocol.schema import Bytes, Field, Int16, Int64, Request, Response, Since, String

VERSIONS = (0, 2)
FLEXIBLE = 2

SaslAuthenticateRequest = Request(
    36,
    "SaslAuthenticateRequest",
    VERSIONS,
    FLEXIBLE,
    "auth_bytes" / Bytes,
)

SaslAuthenticateResponse = Response(
    36,
    "SaslAuthenticateResponse",
    VERSIONS,
    FLEXIBLE,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "auth_bytes" / Bytes,
    "session_lifetime_ms" / Since(1, Int64),
)
