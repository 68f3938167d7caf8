"""The brokers of a cluster, as the database knows them: which live, where they are, and why slots have no leader."""

import json
from collections import Counter
from collections.abc import Sequence

from fencepost.broker.cluster.engine import Member, Slot
from fencepost.broker.network.context import Endpoint
from fencepost.broker.peers.peer import Peer


def may_own(member: Member, lease_ms: int) -> bool:
    """Whether other brokers should give slots to this one: it lives, serves, and is not being drained."""
    return is_alive(member, lease_ms) and member.ready and not member.draining


def is_alive(member: Member, lease_ms: int) -> bool:
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
    return json.dumps({"rack": rack, "listeners": {name: list(where) for name, where in listeners.items()}})


def state_of(member: Member, slots: int, lease_ms: int) -> str:
    """What a broker that owns `slots` slots does, in a few words."""
    if member.left:
        return "stopped"
    if not is_alive(member, lease_ms):
        return f"gone, renewed its lease {member.idle_ms / 1000:.0f} s ago"
    if not member.ready:
        return "joining, loads its logs"
    if member.draining:
        return "draining" if slots else "drained"
    return "leads" if slots else "stands by"


def problems(members: Sequence[Member], slots: Sequence[Slot], lease_ms: int) -> list[str]:
    """Why slots have no leader now, and what follows; nothing if all have one."""
    known = {one.broker: one for one in members}
    found = []
    gone = Counter(slot.broker for slot in slots if slot.broker is not None and not _lives(known, slot, lease_ms))
    able = [one.broker for one in members if is_alive(one, lease_ms) and one.ready]
    follows = (
        f"broker {', '.join(map(str, able))} takes over within a lease"
        if able
        else "no other broker is ready to take over: start one, or wait until it has loaded its logs"
    )
    for broker, count in sorted(gone.items()):
        found.append(f"{count} slots belong to broker {broker}, which does not renew its lease; {follows}")
    free = sum(slot.broker is None for slot in slots)
    if free:
        found.append(f"{free} slots belong to no broker at this moment; {follows}")
    joining = [
        one.broker for one in members if is_alive(one, lease_ms) and not one.ready and one.broker in _owners(slots)
    ]
    for broker in joining:
        found.append(f"broker {broker} owns slots and does not serve yet: it loads its logs")
    if able and all(known[broker].draining for broker in able):
        found.append("all brokers are drained, so they lead until another one comes: `fencepost cluster drain --undo`")
    return found


def _owners(slots: Sequence[Slot]) -> set[int | None]:
    return {slot.broker for slot in slots}


def _lives(known: dict[int, Member], slot: Slot, lease_ms: int) -> bool:
    return slot.broker in known and is_alive(known[slot.broker], lease_ms)
