"""A share group as the fold of its records, with the counts that decisions need.

Only `apply` changes it, the same at an append and in replay. `topics_checked` is not in the log: its loss costs one
more check.
"""

from dataclasses import replace
from typing import assert_never

from fencepost.coordinator.group.consumer.group import INITIAL_EPOCH, NO_EPOCH, Subscribers, count_names
from fencepost.coordinator.group.consumer.member import LEAVE_EPOCH, NOTHING, Assignment
from fencepost.coordinator.group.share.member import ShareMember
from fencepost.coordinator.group.share.partitions import GroupPartitions
from fencepost.coordinator.group.share.records import (
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareMemberRecord,
    SharePartitionsRecord,
    ShareRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
)
from fencepost.coordinator.metadata.image import MetadataImage


class ShareGroup:
    """One group; all of its records have its `group_id`."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = INITIAL_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ShareMember] = {}
        """By id, in the order in which they joined."""
        self.target: dict[str, Assignment] = {}
        self.topics: dict[str, Subscribers] = {}
        """Every topic that a member subscribes to; it need not exist."""
        self.partitions = GroupPartitions()
        self.topics_checked = False
        """Whether the epoch reflects the newest metadata of the topics; not in the log."""
        self._assignment_pending: bool | None = None
        self._all_begun_in: object = None

    @property
    def state(self) -> str:
        """The phase under its name in ShareGroupDescribe and ListGroups."""
        return "Stable" if self.members else "Empty"

    @property
    def assignment_pending(self) -> bool:
        """Whether an initialised partition of a subscribed topic is in no member's target.

        (Kafka's GroupMetadataManager.initializedAssignmentPending, which looks at all topics for each heartbeat)
        """
        if self._assignment_pending is None:
            self._assignment_pending = bool(self.members) and self._misses_assignment()
        return self._assignment_pending

    def _misses_assignment(self) -> bool:
        given: dict[bytes, set[int]] = {}
        for target in self.target.values():
            for topic_id, partitions in target.items():
                given.setdefault(topic_id, set()).update(partitions)
        return any(
            topic.name in self.topics and given.get(topic_id, set()) != topic.partitions
            for topic_id, topic in self.partitions.initialized.items()
        )

    def has_begun_all(self, image: MetadataImage, now_ms: int, retry_ms: int) -> bool:
        """Whether `partitions.missing` finds nothing for the subscriptions of the members.

        Known without a look at the topics while neither they nor the group change.
        """
        if self._all_begun_in is image.topics_by_name:
            return True
        if self.partitions.missing(self.topics, image, now_ms, retry_ms):
            return False
        if not self.partitions.initializing:  # else time alone makes them missing again
            self._all_begun_in = image.topics_by_name
        return True

    def apply(self, record: ShareRecord) -> None:
        """Apply one record. A tombstone of an absent key has no effect (compaction may have left only tombstones)."""
        self._assignment_pending = self._all_begun_in = None
        match record:
            case ShareMemberRecord():
                self._apply_member(record)
            case ShareEpochRecord():
                if record.value is not None:
                    self.epoch, self.metadata_hash = record.value
            case ShareTargetEpochRecord():
                self.assignment_epoch, self.assignment_timestamp_ms = record.value or (NO_EPOCH, 0)
            case ShareTargetRecord():
                if record.value is None:
                    self.target.pop(record.member_id, None)
                else:
                    self.target[record.member_id] = record.value
            case ShareCurrentRecord():
                self._apply_current(record)
            case SharePartitionsRecord():
                self.partitions = record.value or GroupPartitions()
            case _:
                assert_never(record)

    def _apply_member(self, record: ShareMemberRecord) -> None:
        old = self.members.get(record.member_id)
        if old is not None:
            count_names(self.topics, old.topics, -1)
        if record.value is None:
            self.members.pop(record.member_id, None)
            return
        base = old or ShareMember(member_id=record.member_id)
        count_names(self.topics, record.value.topics, 1)
        self.members[record.member_id] = replace(
            record.value, epoch=base.epoch, previous_epoch=base.previous_epoch, assigned=base.assigned
        )

    def _apply_current(self, record: ShareCurrentRecord) -> None:
        old = self.members.get(record.member_id)
        value = record.value
        if value is None:
            if old is not None:
                self.members[record.member_id] = replace(
                    old, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=NOTHING
                )
            return
        base = old or ShareMember(member_id=record.member_id)
        self.members[record.member_id] = replace(
            base, epoch=value.epoch, previous_epoch=value.previous_epoch, assigned=value.assigned
        )


def tombstones(group: ShareGroup) -> list[ShareRecord]:
    """The records that remove an empty group (Kafka's ShareGroup.createGroupTombstoneRecords)."""
    group_id, members = group.group_id, list(group.members)
    return [
        *(ShareCurrentRecord(group_id, member_id, None) for member_id in members),
        *(ShareTargetRecord(group_id, member_id, None) for member_id in members),
        ShareTargetEpochRecord(group_id, None),
        *(ShareMemberRecord(group_id, member_id, None) for member_id in members),
        SharePartitionsRecord(group_id, None),
        ShareEpochRecord(group_id, None),
    ]
