"""One member of a consumer group: its identity, subscription, assignment, and partitions to give back (KIP-848)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

Assignment: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partitions by 16-byte topic id; a topic without partitions is left out."""

Owned: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch in which its owner received it."""

JOIN_EPOCH = 0
"""The epoch with which a member joins or rejoins."""
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member leaves temporarily; it keeps its membership and its partitions until its session expires."""

NOTHING: Assignment = {}
NOTHING_OWNED: Owned = {}


class MemberState(IntEnum):
    """The progress of a member towards the target assignment, under the numbers of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must still give partitions back."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members must still give back."""
    UNKNOWN = 127
    """Written by a newer broker: the member has to join again."""


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """The additional data of a member that uses the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Assignor names with the embedded subscription for each, the preferred one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """The immutable state of a member; every change creates a new value."""

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    """The epoch before the last bump: it is still accepted, for the answer with the new one may be lost."""
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = ""
    """A subscription by regular expression; empty or None if there is none."""
    assignor: str | None = None
    assigned: Owned = field(default_factory=dict)
    """The partitions that it may read."""
    revoking: Owned = field(default_factory=dict)
    """The partitions that it must give back, and may still read."""
    classic: ClassicSide | None = None
    """Set for a member of the classic protocol."""

    def reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assigned_in(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which it received the partition; None if it neither has it nor must give it back."""
        found = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if found is None else found


def without_epochs(owned: Owned) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def everything_of(member: ConsumerMember) -> Assignment:
    """The partitions that the member may be reading, those included that it must still give back."""
    topic_ids = [*member.assigned, *(topic_id for topic_id in member.revoking if topic_id not in member.assigned)]
    return {
        topic_id: frozenset(member.assigned.get(topic_id, {})) | frozenset(member.revoking.get(topic_id, {}))
        for topic_id in topic_ids
    }


def with_epoch(assignment: Assignment, epoch: int) -> Owned:
    return {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in assignment.items()}


def is_owned(reported: Iterable[tuple[bytes, Iterable[int]]], owned: Owned) -> bool:
    """Whether every partition that a member reports is among `owned`."""
    return all(
        topic_id in owned and all(partition in owned[topic_id] for partition in partitions)
        for topic_id, partitions in reported
    )
