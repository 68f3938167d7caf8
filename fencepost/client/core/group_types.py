"""What a group knows of a consumer, as values: its member and generation, and its committed offsets."""

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """Which member of a group commits, and under which generation (KIP-447); -1 and "" for a consumer without one."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class CommittedOffset(NamedTuple):
    """Where a group goes on reading, with the leader epoch of the record before (-1 if unknown) and a note."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
