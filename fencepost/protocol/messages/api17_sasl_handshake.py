"""SaslHandshake (17): choose an authentication mechanism."""

from fencepost.protocol.schema import Array, Int16, Request, Response, String

VERSIONS = (0, 1)

SaslHandshakeRequest = Request(
    17,
    "SaslHandshakeRequest",
    VERSIONS,
    None,
    "mechanism" / String,
)

SaslHandshakeResponse = Response(
    17,
    "SaslHandshakeResponse",
    VERSIONS,
    None,
    "error_code" / Int16,
    "mechanisms" / Array(String),
)
