"""The envelope of a forwarded request, byte by byte (KIP-590)."""

from typing import Any

import pytest

from fencepost.broker.network.context import Endpoint, RequestContext, Session
from fencepost.broker.peers.envelope import ask_for, read_sender
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.security.principal import Principal
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api19_create_topics import CreateTopicsRequest, CreateTopicsResponse
from fencepost.protocol.messages.api58_envelope import EnvelopeRequest, EnvelopeResponse
from fencepost.protocol.schema import DecodeError

ALICE = b"\0\0" + b"\x05User" + b"\x06alice" + b"\0" + b"\0"
"""`MessageUtil.toVersionPrefixedBytes` of DefaultPrincipalData.json: version, type, name, tokenAuthenticated, tags."""


class OneAnswer:
    """Links with one answer."""

    def __init__(self, answer: EnvelopeResponse) -> None:
        self.answer = answer
        self.asked: list[tuple[int, EnvelopeRequest, int]] = []

    async def ask(self, broker: int, request: Any, version: int) -> Any:
        self.asked.append((broker, request, version))
        return self.answer

    def close(self) -> None: ...


def context(host: str = "10.1.2.3") -> RequestContext:
    session = Session(host, Endpoint("h", 1), Principal("User", "alice"))
    return RequestContext(19, 5, 77, "tool", session)


async def test_a_request_and_its_answer_travel_with_their_headers() -> None:
    body = b"\0\0\0\x4d\0" + CreateTopicsResponse.encode(CreateTopicsResponse(throttle_time_ms=9), 5)
    links = OneAnswer(EnvelopeResponse(response_data=body))
    answer = await ask_for(links, 3, CreateTopicsRequest(timeout_ms=5), context())
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.throttle_time_ms == 9
    ((broker, asked, version),) = links.asked
    assert (broker, version) == (3, 0)
    assert bytes(asked.request_data[:17]) == b"\0\x13\0\x05\0\0\0\x4d\0\x04tool\0\x01\0"
    assert bytes(asked.request_principal or b"") == ALICE
    assert asked.client_host_address == bytes((10, 1, 2, 3))


async def test_a_refusal_says_why() -> None:
    links = OneAnswer(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
    with pytest.raises(PeerUnavailable, match="broker 3 refuses CreateTopics: NOT_CONTROLLER"):
        await ask_for(links, 3, CreateTopicsRequest(), context())


@pytest.mark.parametrize(
    ("address", "host"), [(bytes((127, 0, 0, 1)), "127.0.0.1"), (bytes(15) + b"\x01", "::1"), (b"", "")]
)
def test_the_sender_is_read(address: bytes, host: str) -> None:
    sender = read_sender(EnvelopeRequest(request_data=b"", request_principal=ALICE, client_host_address=address))
    assert (str(sender.principal), sender.host) == ("User:alice", host)


@pytest.mark.parametrize(
    ("principal", "address", "why"),
    [
        (None, b"", "no principal"),
        (b"\0\1", b"", "no principal"),
        (ALICE, b"abc", "an IPv4 or IPv6 address"),
        (ALICE[:6], b"", "DefaultPrincipalData"),
    ],
)
def test_a_damaged_envelope_is_refused(principal: bytes | None, address: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read_sender(EnvelopeRequest(request_data=b"", request_principal=principal, client_host_address=address))
