"""The next step of a group member, from its state machine to the membership that has the connections."""

from dataclasses import dataclass

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class Revoke:
    """Stop reading these partitions, then call `revoked`. `lost`: others may have them, so nothing can be committed."""

    partitions: frozenset[TopicPartition]
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """Read these partitions too, then call `assigned`."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Join:
    """JoinGroup: (strategy, subscription) pairs, the preferred one first, and why (KIP-800)."""

    member_id: str
    protocols: tuple[tuple[str, bytes], ...]
    reason: str


@dataclass(frozen=True, slots=True)
class CountPartitions:
    """This member leads: count the partitions of these topics, then call `counted`."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """SyncGroup; the leader's has the assignments of all members."""

    member_id: str
    generation: int
    strategy: str
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Resolve:
    """The names of these topic ids are unknown: look them up, then call `named`."""

    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Stay:
    """Do nothing until a heartbeat or the program brings a change."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The group rejects this member with an error that no retry would resolve."""

    code: ErrorCode
    api: str


Step = Revoke | Assign | Join | CountPartitions | Sync | Resolve | Stay | Fail
STAY = Stay()
EXPELLED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""The group continues without this member: another member may have its partitions by now."""
