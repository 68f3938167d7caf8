"""SaslAuthenticate (36): the exchange of the chosen mechanism."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bytes, Field, Int16, Int64, Request, Response, Since, String

SaslAuthenticateRequest = Request(
    ApiKey.SASL_AUTHENTICATE,
    "auth_bytes" / Bytes,
)

SaslAuthenticateResponse = Response(
    ApiKey.SASL_AUTHENTICATE,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "auth_bytes" / Bytes,
    "session_lifetime_ms" / Since(1, Int64),
)
