"""What a consumer group writes to `__consumer_offsets`, as values: one class per kind of key; None is a tombstone."""

from typing import NamedTuple, TypeAlias

from fencepost.coordinator.group.consumer.member import Assignment, ConsumerMember


class GroupEpoch(NamedTuple):
    """The epoch that the group's subscriptions and topics are at, and what those topics looked like, as one number."""

    epoch: int
    metadata_hash: int = 0


class TargetEpoch(NamedTuple):
    """The group epoch that the target assignment was made for, and when (ms since 1970; 0: not known)."""

    epoch: int
    timestamp_ms: int = 0


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched in the metadata at offset `version`."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class EpochRecord(NamedTuple):
    """ConsumerGroupMetadata (3): the group is there, at an epoch."""

    group_id: str
    value: GroupEpoch | None


class TopicsRecord(NamedTuple):
    """ConsumerGroupPartitionMetadata (4): the topics, as Kafka up to 4.0 kept them. Read and removed, not written."""

    group_id: str
    there: bool


class MemberRecord(NamedTuple):
    """ConsumerGroupMemberMetadata (5): who a member is and what it wants; only that part of `value` counts."""

    group_id: str
    member_id: str
    value: ConsumerMember | None


class TargetEpochRecord(NamedTuple):
    """ConsumerGroupTargetAssignmentMetadata (6)."""

    group_id: str
    value: TargetEpoch | None


class TargetRecord(NamedTuple):
    """ConsumerGroupTargetAssignmentMember (7): what a member is to have."""

    group_id: str
    member_id: str
    value: Assignment | None


class CurrentRecord(NamedTuple):
    """ConsumerGroupCurrentMemberAssignment (8): a member's epochs, state, partitions; only those of `value` count."""

    group_id: str
    member_id: str
    value: ConsumerMember | None


class RegexRecord(NamedTuple):
    """ConsumerGroupRegularExpression (16): what a regular expression matches."""

    group_id: str
    regex: str
    value: ResolvedRegex | None


ConsumerRecord: TypeAlias = (
    EpochRecord | TopicsRecord | MemberRecord | TargetEpochRecord | TargetRecord | CurrentRecord | RegexRecord
)
CONSUMER_RECORDS = (
    EpochRecord,
    TopicsRecord,
    MemberRecord,
    TargetEpochRecord,
    TargetRecord,
    CurrentRecord,
    RegexRecord,
)
