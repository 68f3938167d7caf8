"""What a member of a group has to do next, as its machine tells whoever has the sockets and the program."""

from dataclasses import dataclass

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop reading these; `lost`: others may have them already, so nothing can be committed. Then say `given_up`."""

    partitions: frozenset[TopicPartition]
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Take:
    """These are ours as well from now on. Then say `taken`."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Join:
    """JoinGroup: (strategy, subscription) pairs, the preferred one first, and why (KIP-800)."""

    member_id: str
    protocols: tuple[tuple[str, bytes], ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Deal:
    """We lead: find out how many partitions these topics have, and say `dealt`."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """SyncGroup; the leader's has everybody's assignment."""

    member_id: str
    generation: int
    strategy: str
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Resolve:
    """The names of these topic ids are not known: ask for them, and say `named`."""

    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Stay:
    """Nothing, until a heartbeat or the program brings something new."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The group will not have this member: an error that no further try would mend."""

    code: ErrorCode
    api: str


Step = GiveUp | Take | Join | Deal | Sync | Resolve | Stay | Fail
STAY = Stay()
EXPELLED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""The group goes on without this member: what it had may be somebody else's by now."""
