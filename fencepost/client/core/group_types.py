"""A consumer's membership and committed offsets, as values."""

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """The member of a group that commits, and its generation (KIP-447); -1 and "" for a consumer without one."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class CommittedOffset(NamedTuple):
    """The offset where a group continues, the leader epoch of the record before it (-1 if unknown), and metadata."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
