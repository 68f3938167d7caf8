"""One member of a consumer group: who it is, what it wants, what it has, and what it must give back (KIP-848)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

Assignment: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partitions by 16-byte topic id; a topic without partitions does not stand in it."""

Owned: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch in which it was given to its owner."""

JOIN_EPOCH = 0
"""The epoch with which a member asks to join, or to join again."""
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member leaves for a while; its place and its partitions are kept until its session is over."""

NOTHING: Assignment = {}
NOTHING_OWNED: Owned = {}


class MemberState(IntEnum):
    """How far a member is on its way to the target assignment, under the numbers of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has still to give partitions back."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have still to give back."""
    UNKNOWN = 127
    """Written by a newer broker: the member has to join again."""


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What is kept of a member that speaks the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Assignor names with the embedded subscription under each, most wanted first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member at one moment; every change makes a new value."""

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    """The epoch before the last bump: an answer may have been lost, so it is still taken."""
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = ""
    """A subscription by regular expression; empty or None where there is none."""
    assignor: str | None = None
    assigned: Owned = field(default_factory=dict)
    """What it may read."""
    revoking: Owned = field(default_factory=dict)
    """What it has been told to give back and may still read."""
    classic: ClassicSide | None = None
    """Set for a member of the classic protocol."""

    def reconciled_to(self, epoch: int) -> bool:
        """Whether it has reached the target assignment of `epoch`."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assigned_in(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which it was given the partition; None if it neither has it nor is to give it back."""
        found = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if found is None else found


def without_epochs(owned: Owned) -> Assignment:
    """The partitions alone."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def everything_of(member: ConsumerMember) -> Assignment:
    """What the member may be reading: all it was given, what it has still to give back included."""
    topic_ids = [*member.assigned, *(topic_id for topic_id in member.revoking if topic_id not in member.assigned)]
    return {
        topic_id: frozenset(member.assigned.get(topic_id, {})) | frozenset(member.revoking.get(topic_id, {}))
        for topic_id in topic_ids
    }


def with_epoch(assignment: Assignment, epoch: int) -> Owned:
    """All partitions as given in `epoch`."""
    return {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in assignment.items()}


def is_owned(reported: Iterable[tuple[bytes, Iterable[int]]], owned: Owned) -> bool:
    """Whether every partition that a member reports is among `owned`."""
    return all(
        topic_id in owned and all(partition in owned[topic_id] for partition in partitions)
        for topic_id, partitions in reported
    )
