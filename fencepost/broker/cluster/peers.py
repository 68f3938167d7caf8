"""The other brokers of a cluster, as the database knows them."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from fencepost.broker.cluster.engine import Member
from fencepost.broker.cluster.slot_plan import is_alive
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


def peers_of(members: Sequence[Member], node_id: int, lease_ms: int) -> dict[int, Peer]:
    """The other brokers that live."""
    found = {}
    for one in members:
        if one.broker == node_id or one.left or one.idle_ms > 2 * lease_ms:
            continue
        addresses = json.loads(one.addresses)
        listeners = {name: Endpoint(host, port) for name, (host, port) in addresses["listeners"].items()}
        serves = one.ready and is_alive(one, lease_ms)
        found[one.broker] = Peer(one.broker, addresses["rack"], listeners, serves)
    return found


def addresses_text(listeners: dict[str, Endpoint], rack: str | None) -> str:
    """A broker's addresses for the database."""
    return json.dumps({"rack": rack, "listeners": {name: list(where) for name, where in listeners.items()}})
