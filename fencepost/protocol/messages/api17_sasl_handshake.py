"""SaslHandshake (17): choose an authentication mechanism."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Int16, Request, Response, String

SaslHandshakeRequest = Request(
    ApiKey.SASL_HANDSHAKE,
    "mechanism" / String,
)

SaslHandshakeResponse = Response(
    ApiKey.SASL_HANDSHAKE,
    "error_code" / Int16,
    "mechanisms" / Array(String),
)
