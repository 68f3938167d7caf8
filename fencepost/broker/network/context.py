"""What a request handler is told about the request, and the answer that waits for the disk."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fencepost.broker.log.results import Ticket


class Endpoint(NamedTuple):
    """An address as clients are told it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RequestContext:
    """One request's header and where it came from.

    `listener` is the address this client should use for this broker: what is advertised, or, on a broker that
    listens on every interface and advertises nothing, the local address of this very connection.
    """

    __slots__ = ("api_key", "api_version", "client_host", "client_id", "correlation_id", "listener")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        client_host: str,
        listener: Endpoint,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client_host = client_host
        self.listener = listener


class DurableReply:
    """An answer that may leave only when every one of `tickets` is settled: the newest of each log.

    A handler returns it instead of waiting itself, so that requests which stand behind each other in one
    connection's buffer are all appended first and then share one flush.
    """

    __slots__ = ("response", "tickets")

    def __init__(self, response: Any, tickets: "Collection[Ticket]") -> None:
        self.response = response
        self.tickets = tickets

    def revise(self) -> None:
        """Bring the answer in line with its tickets: a log went offline, or binds offsets late."""
        raise NotImplementedError


class CloseConnection(Exception):
    """A handler's wish to end the connection without an answer; the text is for the log.

    Kafka does this where acks=0 leaves no other way to say that a write failed.
    """


class EncodedReply:
    """What a handler returns where it has the response's bytes in pieces already."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts
