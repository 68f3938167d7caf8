"""The state that one partition of `__consumer_offsets` folds to: its groups and their committed offsets."""

from typing import assert_never

from fencepost.coordinator.group.codec import CorruptRecord, decode, encode
from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.consumer.records import CONSUMER_RECORDS, ConsumerRecord, EpochRecord, TopicsRecord
from fencepost.coordinator.group.offsets import OffsetStore
from fencepost.coordinator.group.records import (
    GroupRecord,
    GroupRemoved,
    GroupSaved,
    OffsetCommitted,
    OffsetPending,
    OffsetRemoved,
    restored,
)
from fencepost.coordinator.group.share.group import ShareGroup
from fencepost.coordinator.group.share.records import SHARE_RECORDS, ShareEpochRecord, ShareRecord
from fencepost.coordinator.group.state import Dead, Empty, Group
from fencepost.coordinator.ports import KeyValue, LogUnreadable, ReplayedBatch

_DEAD = Dead()


class GroupShardState:
    """The groups of one partition, in memory; records, decisions and transaction markers change it."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        """The groups of the classic protocol, simple ones included."""
        self.consumers: dict[str, ConsumerGroup] = {}
        """The groups of the consumer protocol (KIP-848)."""
        self.shares: dict[str, ShareGroup] = {}
        """The share groups (KIP-932); a group id is in one of the three only."""
        self.offsets = OffsetStore()

    def group(self, group_id: str) -> Group:
        """The classic group; Dead if there is none."""
        return self.groups.get(group_id, _DEAD)

    def has_group(self, group_id: str) -> bool:
        """Whether there is a group of any type."""
        return group_id in self.groups or group_id in self.consumers or group_id in self.shares

    def ensure_group(self, group_id: str) -> None:
        """Create a simple group for committed offsets, unless the group exists."""
        if not self.has_group(group_id):
            self.groups[group_id] = Empty()

    def put(self, group_id: str, group: Group) -> None:
        if isinstance(group, Dead):
            self.groups.pop(group_id, None)
        else:
            self.groups[group_id] = group


def apply(state: GroupShardState, record: GroupRecord) -> GroupShardState:
    """Apply one record, at its append and in replay. Offsets of an unknown group create a simple group."""
    if isinstance(record, CONSUMER_RECORDS):
        _apply_consumer(state, record)
        return state
    if isinstance(record, SHARE_RECORDS):
        _apply_share(state, record)
        return state
    match record:
        case OffsetCommitted():
            state.ensure_group(record.group_id)
            state.offsets.apply(record)
        case OffsetPending():
            state.ensure_group(record.commit.group_id)
            state.offsets.apply(record)
        case OffsetRemoved():
            state.offsets.apply(record)
        case GroupSaved():
            state.groups[record.group_id] = restored(record)
            state.consumers.pop(record.group_id, None)
        case GroupRemoved():
            state.groups.pop(record.group_id, None)
        case _:
            assert_never(record)
    return state


def _apply_consumer(state: GroupShardState, record: ConsumerRecord) -> None:
    """Apply a consumer group's record. The first creates the group; the tombstone of its epoch removes it.

    The group's offsets stay.
    """
    group_id = record.group_id
    group = state.consumers.get(group_id)
    removes = not record.there if isinstance(record, TopicsRecord) else record.value is None
    if group is None:
        if removes:
            return
        group = state.consumers[group_id] = ConsumerGroup(group_id)
        state.groups.pop(group_id, None)
    group.apply(record)
    if isinstance(record, EpochRecord) and removes:
        del state.consumers[group_id]
        if state.offsets.has_any(group_id):
            state.ensure_group(group_id)


def _apply_share(state: GroupShardState, record: ShareRecord) -> None:
    """Apply a share group's record. The first creates the group; the tombstone of its epoch removes it."""
    group = state.shares.get(record.group_id)
    if group is None:
        if record.value is None:
            return
        group = state.shares[record.group_id] = ShareGroup(record.group_id)
    group.apply(record)
    if isinstance(record, ShareEpochRecord) and record.value is None:
        del state.shares[record.group_id]


class GroupRecords:
    """How a shard of groups folds: the runtime's `Machine`."""

    def empty(self) -> GroupShardState:
        return GroupShardState()

    def apply(self, state: GroupShardState, record: GroupRecord) -> GroupShardState:
        return apply(state, record)

    def encode(self, record: GroupRecord) -> KeyValue:
        return encode(record)

    def replay(self, state: GroupShardState, batch: ReplayedBatch) -> int:
        if batch.marker_commits is not None:
            state.offsets.complete(batch.producer_id, batch.marker_commits)
            return 0
        unknown = 0
        for key, value in batch.records:
            try:
                record: GroupRecord | None = decode(key, value)
            except CorruptRecord as error:
                raise LogUnreadable(f"in the batch at offset {batch.base_offset}: {error}") from error
            if record is None:
                unknown += 1
                continue
            if batch.transactional and isinstance(record, OffsetCommitted):
                record = OffsetPending(batch.producer_id, record)
            apply(state, record)
        return unknown
