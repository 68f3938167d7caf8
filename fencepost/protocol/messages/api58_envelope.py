"""Envelope (58): another broker sends a client's request to the broker that can carry it out (KIP-590)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Bytes, Field, Int16, Message, Request, Response, String

EnvelopeRequest = Request(
    ApiKey.ENVELOPE,
    "request_data" / Bytes,
    "request_principal" / Field(Bytes, nullable=0),
    "client_host_address" / Bytes,
)

EnvelopeResponse = Response(
    ApiKey.ENVELOPE,
    "response_data" / Field(Bytes, default=None, nullable=0),
    "error_code" / Int16,
)

DefaultPrincipalData = Message(
    "DefaultPrincipalData",
    (0, 0),
    0,
    "type" / String,
    "name" / String,
    "token_authenticated" / Bool,
)
"""What `request_principal` holds, after its version (int16)."""
