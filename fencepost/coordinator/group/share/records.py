"""The records of a share group in `__consumer_offsets`, as values: one class per kind of key; None: a tombstone."""

from typing import NamedTuple, TypeAlias

from fencepost.coordinator.group.consumer.member import Assignment
from fencepost.coordinator.group.consumer.records import GroupEpoch, TargetEpoch
from fencepost.coordinator.group.share.member import ShareMember
from fencepost.coordinator.group.share.partitions import GroupPartitions


class ShareMemberRecord(NamedTuple):
    """ShareGroupMemberMetadata (10): a member's identity and subscription; only that part of `value` counts."""

    group_id: str
    member_id: str
    value: ShareMember | None


class ShareEpochRecord(NamedTuple):
    """ShareGroupMetadata (11): the group exists, at an epoch."""

    group_id: str
    value: GroupEpoch | None


class ShareTargetEpochRecord(NamedTuple):
    """ShareGroupTargetAssignmentMetadata (12)."""

    group_id: str
    value: TargetEpoch | None


class ShareTargetRecord(NamedTuple):
    """ShareGroupTargetAssignmentMember (13): the target assignment of a member."""

    group_id: str
    member_id: str
    value: Assignment | None


class ShareCurrentRecord(NamedTuple):
    """ShareGroupCurrentMemberAssignment (14): a member's epochs and partitions; only those of `value` count."""

    group_id: str
    member_id: str
    value: ShareMember | None


class SharePartitionsRecord(NamedTuple):
    """ShareGroupStatePartitionMetadata (15): the partitions that the group has begun."""

    group_id: str
    value: GroupPartitions | None


ShareRecord: TypeAlias = (
    ShareMemberRecord
    | ShareEpochRecord
    | ShareTargetEpochRecord
    | ShareTargetRecord
    | ShareCurrentRecord
    | SharePartitionsRecord
)
SHARE_RECORDS = (
    ShareMemberRecord,
    ShareEpochRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    ShareCurrentRecord,
    SharePartitionsRecord,
)
