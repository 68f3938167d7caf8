"""The records of `__consumer_offsets`, as values; `codec.py` has their bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from fencepost.coordinator.group.consumer.records import ConsumerRecord
from fencepost.coordinator.group.share.records import ShareRecord
from fencepost.coordinator.group.state import Empty, Group, Member, Stable
from fencepost.protocol.topics import TopicPartition


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    """Set only by OffsetCommit v2-4 with its own retention; -1 otherwise."""
    topic_id: bytes | None = None
    """Set if the client named the topic by its id (OffsetCommit v10, TxnOffsetCommit v6)."""


class OffsetCommitted(NamedTuple):
    """A group committed an offset."""

    group_id: str
    partition: TopicPartition
    value: CommittedOffset


class OffsetPending(NamedTuple):
    """An offset that becomes visible when the transaction of `producer_id` commits; in a transactional batch."""

    producer_id: int
    commit: OffsetCommitted


class OffsetRemoved(NamedTuple):
    """A group's offset is removed: it expired, or was deleted, alone or with its group or its topic."""

    group_id: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class GroupSaved:
    """A group with its members and assignments (GroupMetadataValue)."""

    group_id: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    since_ms: int
    members: tuple[Member, ...] = ()
    """Each with the chosen protocol as its only one."""


@dataclass(frozen=True, slots=True)
class GroupRemoved:
    """A group was removed."""

    group_id: str


GroupRecord: TypeAlias = (
    OffsetCommitted | OffsetPending | OffsetRemoved | GroupSaved | GroupRemoved | ConsumerRecord | ShareRecord
)


def saved(group_id: str, group: Stable | Empty, now_ms: int) -> GroupSaved:
    if isinstance(group, Empty):
        since_ms = now_ms if group.since_ms is None else group.since_ms
        return GroupSaved(group_id, group.protocol_type or "", group.generation, None, None, since_ms)
    members = tuple(persisted_member(member, group.protocol) for member in group.members.values())
    return GroupSaved(group_id, group.protocol_type, group.generation, group.protocol, group.leader, now_ms, members)


def persisted_member(member: Member, protocol: str) -> Member:
    """The member as its record has it: without the subscriptions for protocols that were not chosen."""
    if len(member.protocols) == 1 and member.protocols[0][0] == protocol and not member.is_new:
        return member
    return Member(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        ((protocol, member.metadata(protocol)),),
        member.assignment,
    )


def restored(record: GroupSaved) -> Group:
    """The group in a record: stable with its members, or empty."""
    if not record.members:
        since_ms = None if record.since_ms < 0 else record.since_ms
        return Empty(record.generation, record.protocol_type or None, since_ms)
    members: Mapping[str, Member] = {member.member_id: member for member in record.members}
    return Stable(record.generation, record.protocol_type, record.protocol or "", record.leader, members)
