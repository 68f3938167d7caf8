"""Another broker, and what is asked of it."""

from typing import Any, NamedTuple, Protocol

from fencepost.broker.network.context import Endpoint


class PeerUnavailable(Exception):
    """Another broker cannot be asked; the text says which, and why."""


class Links(Protocol):
    """Connections to the other brokers."""

    async def ask(self, broker: int, request: Any, version: int) -> Any:
        """The answer of another broker; it may get the request twice. Raises PeerUnavailable."""

    def close(self) -> None:
        """Close all idle connections."""


class Peer(NamedTuple):
    """Another broker of the cluster, as clients reach it."""

    node_id: int
    rack: str | None
    listeners: dict[str, Endpoint]
    """Its addresses by listener."""
    serves: bool = True
    """It is ready, and its lease is current: consumers may be sent there."""
