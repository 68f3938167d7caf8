"""Another broker, and the connections to all of them."""

from typing import Any, NamedTuple, Protocol

from fencepost.broker.network.context import Endpoint


class PeerUnavailable(Exception):
    """Another broker cannot be asked, or it is not known which one; the text says why."""


class Links(Protocol):
    """Connections to the other brokers."""

    async def ask(self, broker: int, request: Any, version: int) -> Any:
        """The answer of another broker; it may get the request twice. Raises PeerUnavailable."""

    def close(self) -> None: ...


class NoLinks:
    """Those of a broker without others."""

    async def ask(self, broker: int, request: Any, version: int) -> Any:
        raise PeerUnavailable(f"there is no broker {broker}")

    def close(self) -> None:
        """Nothing is open."""


class Peer(NamedTuple):
    """Another broker of the cluster, as clients reach it."""

    node_id: int
    rack: str | None
    listeners: dict[str, Endpoint]
    """Its addresses by listener. Without a host: that of this broker, as the client reaches it."""
    serves: bool = True
    """It is ready, and its lease is current: consumers may be sent there."""
