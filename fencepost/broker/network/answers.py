"""Answers on their way out: their bytes, what they wait for, and how they are written anew when a log is lost."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fencepost.broker.network.context import DurableReply, EncodedReply
from fencepost.protocol.headers import write_response_header
from fencepost.protocol.registry import Api
from fencepost.protocol.schema import MessageValue

if TYPE_CHECKING:
    from fencepost.broker.log.results import Ticket


class Answer:
    """One response frame, its length in front, as pieces to be sent in order (bytes-like objects and FileRegions)."""

    __slots__ = ("parts", "size_bytes", "tickets")

    def __init__(self, parts: list[Any], size_bytes: int, tickets: "Iterable[Ticket]" = ()) -> None:
        self.parts = parts
        self.size_bytes = size_bytes
        self.tickets = tickets
        """What must be settled before this leaves."""

    def revise(self) -> None:
        """Encode it again where a ticket says something else than before: its log went offline, or binds late."""


class DurableAnswer(Answer):
    """The answer behind a handler's `DurableReply`."""

    __slots__ = ("_api", "_correlation_id", "_reply", "_version")

    def __init__(self, api: Api, version: int, correlation_id: int, reply: DurableReply) -> None:
        parts, size_bytes = framed(api, version, correlation_id, reply.response)
        super().__init__(parts, size_bytes, reply.tickets)
        self._api = api
        self._version = version
        self._correlation_id = correlation_id
        self._reply = reply

    def revise(self) -> None:
        self._reply.revise()
        self.parts, self.size_bytes = framed(self._api, self._version, self._correlation_id, self._reply.response)


def front_of(message: type[MessageValue], version: int, response: Any, rest: bytes) -> bytes:
    """What stands in front of the last field of `response`, which together with what follows it is encoded as `rest`.

    For answers that differ in that field alone: what they share is encoded once.
    """
    encoded = message.encode(response, version)
    assert encoded.endswith(rest), f"{message.__name__} v{version} does not end with that field"
    return encoded[: -len(rest)]


def answer_of(api: Api, version: int, correlation_id: int, reply: Any) -> Answer:
    """The answer to one request: `reply` is a response, or a `DurableReply` around it."""
    if type(reply) is EncodedReply and len(reply.parts) == 1:
        head, [body] = write_response_header(api, version, correlation_id), reply.parts
        data = (len(head) + len(body)).to_bytes(4, "big") + head + body
        return Answer([data], len(data))
    if isinstance(reply, DurableReply):
        return DurableAnswer(api, version, correlation_id, reply)
    return Answer(*framed(api, version, correlation_id, reply))


def framed(api: Api, version: int, correlation_id: int, response: Any) -> tuple[list[Any], int]:
    """A response's frame in pieces, and its size."""
    if isinstance(response, EncodedReply):
        parts: list[Any] = response.parts
    else:
        parts = api.response.encode_parts(response, version)
    head = write_response_header(api, version, correlation_id)
    size = len(head) + sum(map(len, parts))
    return [size.to_bytes(4, "big") + head, *parts], size + 4
