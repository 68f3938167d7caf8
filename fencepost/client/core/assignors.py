"""The assignors of classic groups: range, roundrobin, sticky and cooperative-sticky, by Kafka's names.

The coordinator chooses an assignor that every member offers, and the leading member runs it. All of them are functions
of the members' subscriptions, so every leader would compute the same assignment.
"""

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.client.core import sticky
from fencepost.client.core.consumer_protocol import UNKNOWN_GENERATION, Reader, Subscription, encode_partitions
from fencepost.client.core.sticky import Member
from fencepost.client.errors import ConfigError
from fencepost.protocol.topics import TopicPartition

Assignment = dict[str, list[TopicPartition]]
Assign = Callable[[Sequence[Member], Mapping[str, int]], Assignment]
_INT = struct.Struct(">i")


def assign_range(members: Sequence[Member], counts: Mapping[str, int]) -> Assignment:
    """Per topic, each member gets neighbouring partitions; the first members get one more if there is a remainder."""
    assigned: Assignment = {member.member_id: [] for member in members}
    ordered = sorted(members, key=lambda member: member.order)
    for topic in sorted(counts):
        readers = [member for member in ordered if topic in member.topics]
        start = 0
        for place, member in enumerate(readers):
            size = counts[topic] // len(readers) + (1 if place < counts[topic] % len(readers) else 0)
            assigned[member.member_id] += [TopicPartition(topic, p) for p in range(start, start + size)]
            start += size
    return assigned


def assign_roundrobin(members: Sequence[Member], counts: Mapping[str, int]) -> Assignment:
    """Assign all partitions in order, one by one, to the members that subscribe to their topic."""
    assigned: Assignment = {member.member_id: [] for member in members}
    ordered = sorted(members, key=lambda member: member.order)
    at = 0
    for topic in sorted(counts):
        if not any(topic in member.topics for member in ordered):
            continue
        for partition in range(counts[topic]):
            while topic not in ordered[at % len(ordered)].topics:
                at += 1
            assigned[ordered[at % len(ordered)].member_id].append(TopicPartition(topic, partition))
            at += 1
    return assigned


def assign_cooperative(members: Sequence[Member], counts: Mapping[str, int]) -> Assignment:
    """As `sticky`, but a partition that moves stays unassigned until its owner has revoked it (KIP-429).

    Its owner loses it in the new assignment, revokes it and joins again: the second rebalance assigns it.
    """
    assigned = sticky.assign(members, counts)
    owners: dict[TopicPartition, set[str]] = {}
    for member in members:
        for partition in member.owned:
            owners.setdefault(partition, set()).add(member.member_id)
    return {
        member_id: [p for p in partitions if p not in owners or member_id in owners[p]]
        for member_id, partitions in assigned.items()
    }


def _nothing(owned: Collection[TopicPartition], generation: int) -> bytes | None:
    return None


def _sticky_data(owned: Collection[TopicPartition], generation: int) -> bytes | None:
    """StickyAssignorUserData v1. Its partitions are revoked already; it says which ones the member prefers."""
    return encode_partitions(sorted(owned)) + _INT.pack(generation)


def _cooperative_data(owned: Collection[TopicPartition], generation: int) -> bytes | None:
    """The generation, for leaders that know only version 1 of the subscription format."""
    return _INT.pack(generation)


@dataclass(frozen=True, slots=True)
class Assignor:
    """One strategy: its function, a member's user data for it, and whether members keep reading during a rebalance.

    `cooperative`: members keep their partitions during a rebalance, and revoke only those assigned to others.
    """

    name: str
    assign: Assign
    user_data: Callable[[Collection[TopicPartition], int], bytes | None] = _nothing
    cooperative: bool = False

    def member(self, member_id: str, instance_id: str | None, subscription: Subscription) -> Member:
        """The member as input of this assignor. Raises KafkaError if its user data cannot be read."""
        owned: Collection[TopicPartition] = ()
        generation = UNKNOWN_GENERATION
        data = subscription.user_data
        if self.name == "sticky" and data:
            reader = Reader(data, "a member's sticky assignment", "JoinGroup")
            owned = reader.partitions()
            generation = UNKNOWN_GENERATION if reader.at_end else reader.number()
        elif self.cooperative:
            owned, generation = subscription.owned, subscription.generation
            if generation == UNKNOWN_GENERATION and data is not None and len(data) == _INT.size:
                generation = _INT.unpack(data)[0]
        return Member(member_id, instance_id, frozenset(subscription.topics), frozenset(owned), generation)


ASSIGNORS: Mapping[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", assign_range),
        Assignor("roundrobin", assign_roundrobin),
        Assignor("sticky", sticky.assign, _sticky_data),
        Assignor("cooperative-sticky", assign_cooperative, _cooperative_data, cooperative=True),
    )
}


_JAVA_NAMES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def strategy_names(written: Any) -> tuple[str, ...]:
    """An option's value: names in a list or separated by commas, Java's class names too. Raises ValueError."""
    parts = written.split(",") if isinstance(written, str) else written
    short = [str(part).strip().rpartition(".")[2] for part in parts]
    try:
        return tuple(assignor.name for assignor in strategies([_JAVA_NAMES.get(name, name) for name in short]))
    except ConfigError as wrong:
        raise ValueError(f"is not accepted: {wrong}") from None


def strategies(names: Sequence[str]) -> tuple[Assignor, ...]:
    """The assignors of these names, the preferred one first. Raises ConfigError for none, and for one named twice."""
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"{', '.join(names) or 'nothing'!r} must name one or more assignors, each only once")
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown:
        raise ConfigError(f"unknown assignor {unknown[0]!r}; choose from {', '.join(ASSIGNORS)}")
    return tuple(ASSIGNORS[name] for name in names)


def is_cooperative(offered: Sequence[Assignor]) -> bool:
    """Whether members may keep partitions while they join: only if every offered strategy is cooperative.

    That is Kafka's upgrade path from eager: first all members offer [cooperative-sticky, range], still eager,
    and once all of them offer cooperative-sticky, each drops range (KIP-429).
    """
    return all(assignor.cooperative for assignor in offered)
