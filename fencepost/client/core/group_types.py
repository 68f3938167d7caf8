"""A consumer's membership and committed offsets, as values."""

from collections.abc import Mapping
from typing import NamedTuple

from fencepost.client.core.numbers import whole_number
from fencepost.protocol.topics import TopicPartition

_INT_MAX = 2**31 - 1


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


def offsets_to_commit(offsets: Mapping[TopicPartition, int | CommittedOffset]) -> dict[TopicPartition, CommittedOffset]:
    """The offsets that a program commits. Raises TypeError and ValueError: Java's OffsetAndMetadata refuses these, too.

    A broker stores a negative offset, and the group then has none.
    """
    checked = {}
    for partition, place in offsets.items():
        where = TopicPartition(*partition)
        whole_number(f"a partition of {where.topic!r}", where.partition, 0, _INT_MAX)
        offset, epoch, metadata = place if isinstance(place, CommittedOffset) else CommittedOffset(place)
        checked[where] = CommittedOffset(
            whole_number(f"the offset to commit for {where}", offset),
            whole_number(f"the leader epoch to commit for {where}", epoch, -1, _INT_MAX),
            metadata,
        )
    return checked
