"""What a handler returns. The type of the reply says what the response waits for."""

from collections.abc import Callable, Collection, Coroutine
from types import CoroutineType, NoneType
from typing import Any, TypeAlias, TypeVar

from fencepost.broker.log.results import Ticket
from fencepost.coordinator.deferred import Deferred
from fencepost.protocol.schema import MessageValue, ResponseValue

ResultT = TypeVar("ResultT")

Response: TypeAlias = ResponseValue
"""A value of the API's response declaration. It waits for nothing."""


class Encoded:
    """A response whose body is encoded already. It waits for nothing."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts


class Durable:
    """A response that is sent only when every one of `tickets` is settled.

    A handler returns it instead of waiting. So all requests in one connection's buffer are appended first, and share
    one flush.
    """

    __slots__ = ("response", "tickets")

    def __init__(self, response: Response | Encoded, tickets: Collection[Ticket]) -> None:
        self.response = response
        self.tickets = tickets

    def revise(self) -> None:
        """Update the response from its tickets: a log went offline, or assigned its offsets late."""
        raise NotImplementedError


Ready: TypeAlias = Response | Encoded | Durable | None
"""A reply that is complete. None: the client expects no response (Produce with acks=0)."""
READY = (ResponseValue, Encoded, Durable, NoneType)
"""The classes of such replies."""
Reply: TypeAlias = Ready | Deferred[Ready] | Coroutine[Any, Any, Ready]
"""What a handler returns: a complete reply, one that another request completes, or one that its connection's task has
to await."""


async def ready(reply: Reply) -> Ready:
    """The complete reply, now or later."""
    if isinstance(reply, READY):
        return reply
    return await (reply.wait() if isinstance(reply, Deferred) else reply)


def reply_with(
    respond: Callable[[ResultT], Ready], result: ResultT | Deferred[ResultT] | Coroutine[Any, Any, ResultT]
) -> Reply:
    """The reply that `respond` makes of a coordinator's result, now or when the result is complete."""
    if isinstance(result, Deferred):
        return result.map(respond)
    if isinstance(result, CoroutineType):
        return _respond_later(respond, result)
    return respond(result)  # type: ignore[arg-type]


async def _respond_later(respond: Callable[[ResultT], Ready], result: Coroutine[Any, Any, ResultT]) -> Ready:
    return respond(await result)


def encoded_prefix(message: type[MessageValue], version: int, response: Response, rest: bytes) -> bytes:
    """The encoded `response` without its last bytes `rest`: the last field and the tagged fields.

    For responses that differ only in their last field: the common part is encoded once.
    """
    encoded = message.encode(response, version)
    assert encoded.endswith(rest), f"{message.__name__} v{version} does not end with that field"
    return encoded[: -len(rest)]
