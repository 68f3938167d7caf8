"""The brokers of a cluster, as the database knows them."""

import json
from collections.abc import Sequence

from fencepost.broker.cluster.engine import Member
from fencepost.broker.network.context import Endpoint
from fencepost.broker.peers.peer import Peer


def may_own(member: Member, lease_ms: int) -> bool:
    """Whether other brokers should give slots to this one: it lives, serves, and is not being drained."""
    return is_alive(member, lease_ms) and member.ready and not member.draining


def is_alive(member: Member, lease_ms: int) -> bool:
    """Whether its lease is not over."""
    return not member.left and member.idle_ms < lease_ms


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
