"""What a handler is given beside the request: who sent it, and how to end the connection."""

from typing import NamedTuple


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


class CloseConnection(Exception):
    """Raised by a handler to end the connection without a response; the text is for the log.

    Kafka does this where acks=0 leaves no other way to say that a write failed.
    """
