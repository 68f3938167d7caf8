"""The records of a consumer group in `__consumer_offsets`, as values: one class per kind of key; None: a tombstone."""

from typing import NamedTuple, TypeAlias

from fencepost.coordinator.group.consumer.member import Assignment, ConsumerMember


class GroupEpoch(NamedTuple):
    """The epoch of the group's subscriptions and topics, and a hash of those topics."""

    epoch: int
    metadata_hash: int = 0


class TargetEpoch(NamedTuple):
    """The group epoch of the target assignment, and its time (ms since 1970; 0: unknown)."""

    epoch: int
    timestamp_ms: int = 0


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched in the metadata at offset `version`."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class EpochRecord(NamedTuple):
    """ConsumerGroupMetadata (3): the group exists, at an epoch."""

    group_id: str
    value: GroupEpoch | None


class TopicsRecord(NamedTuple):
    """ConsumerGroupPartitionMetadata (4): the topics, in Kafka up to 4.0. The broker reads and removes such records."""

    group_id: str
    there: bool


class MemberRecord(NamedTuple):
    """ConsumerGroupMemberMetadata (5): a member's identity and subscription; only that part of `value` counts."""

    group_id: str
    member_id: str
    value: ConsumerMember | None


class TargetEpochRecord(NamedTuple):
    """ConsumerGroupTargetAssignmentMetadata (6)."""

    group_id: str
    value: TargetEpoch | None


class TargetRecord(NamedTuple):
    """ConsumerGroupTargetAssignmentMember (7): the target assignment of a member."""

    group_id: str
    member_id: str
    value: Assignment | None


class CurrentRecord(NamedTuple):
    """ConsumerGroupCurrentMemberAssignment (8): a member's epochs, state, partitions; only those of `value` count."""

    group_id: str
    member_id: str
    value: ConsumerMember | None


class RegexRecord(NamedTuple):
    """ConsumerGroupRegularExpression (16): the topics that a regular expression matches."""

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
