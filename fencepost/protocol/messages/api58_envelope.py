"""Envelope (58): another broker sends a client's request to the broker that can carry it out (KIP-590)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Bytes, Int16, MessageValue, RequestValue, ResponseValue, String


class EnvelopeRequest(RequestValue["EnvelopeResponse"], api=ApiKey.ENVELOPE):
    request_data: Bytes = b""
    request_principal: Bytes | None = b""
    client_host_address: Bytes = b""


class EnvelopeResponse(ResponseValue, api=ApiKey.ENVELOPE):
    response_data: Bytes | None = None
    error_code: Int16 = 0


class DefaultPrincipalData(MessageValue, versions=(0, 0), flexible=0):
    """What `request_principal` holds, after its version (int16)."""

    type: String = ""
    name: String = ""
    token_authenticated: Bool = False
