"""A client's request in the envelope of the broker that received it (KIP-590): who sent it, from where, and its bytes.

The other broker checks that client's rights, and counts its quotas. Both brokers read and write the envelope here.
"""

import struct
from ipaddress import ip_address
from typing import Any, NamedTuple

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Response
from fencepost.broker.peers.peer import Links, PeerUnavailable
from fencepost.broker.security.principal import Principal
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_response_header, write_request_header
from fencepost.protocol.messages.api58_envelope import DefaultPrincipalData, EnvelopeRequest
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import DecodeError

VERSION = 0
_PRINCIPAL_VERSION = struct.Struct(">h")


class Sender(NamedTuple):
    """Who sent the request in an envelope."""

    principal: Principal
    host: str
    """The client's address; empty if it is not known."""


async def ask_for(links: Links, broker: int, request: Any, context: RequestContext) -> Response:
    """Another broker's answer to a client's request. That broker may get it twice, as in Kafka.

    Raises PeerUnavailable, also if the other broker refuses: it is not the controller any more, for example.
    """
    api, version = API_BY_KEY[context.api_key], context.api_version
    data = write_request_header(api, version, context.correlation_id, context.client_id)
    envelope = EnvelopeRequest(
        request_data=data + api.request.encode(request, version),
        request_principal=_principal_bytes(context.principal),
        client_host_address=_address(context.client_host),
    )
    answer = await links.ask(broker, envelope, VERSION)
    if answer.error_code or answer.response_data is None:
        raise PeerUnavailable(f"broker {broker} refuses {api.name}: {ErrorCode(answer.error_code).name}")
    _, start = read_response_header(api, version, answer.response_data)
    response: Response = api.response.decode(answer.response_data, version, start)
    return response


def read_sender(envelope: EnvelopeRequest) -> Sender:
    """Who sent the request. Raises DecodeError."""
    data = envelope.request_principal or b""
    if len(data) < _PRINCIPAL_VERSION.size or _PRINCIPAL_VERSION.unpack_from(data)[0] != VERSION:
        raise DecodeError("EnvelopeRequest", VERSION, "no principal of version 0", "request_principal")
    found = DefaultPrincipalData.decode(bytes(data), VERSION, _PRINCIPAL_VERSION.size)
    try:
        host = str(ip_address(bytes(envelope.client_host_address))) if envelope.client_host_address else ""
    except ValueError as error:
        raise DecodeError("EnvelopeRequest", VERSION, str(error), "client_host_address") from error
    return Sender(Principal(found.type, found.name), host)


def _principal_bytes(principal: Principal) -> bytes:
    data = DefaultPrincipalData(type=principal.kind, name=principal.name)
    return _PRINCIPAL_VERSION.pack(VERSION) + DefaultPrincipalData.encode(data, VERSION)


def _address(host: str) -> bytes:
    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:  # a double's name
        return b""
