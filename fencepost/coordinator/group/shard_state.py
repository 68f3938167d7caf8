"""What one partition of `__consumer_offsets` folds to: its groups and their positions."""

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
from fencepost.coordinator.group.state import Dead, Empty, Group
from fencepost.coordinator.ports import KeyValue, LogUnreadable, ReplayedBatch

_DEAD = Dead()


class GroupShardState:
    """The groups of one partition, in memory; changed by records, decisions and the ends of transactions."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        """Those of the classic protocol, simple ones included."""
        self.consumers: dict[str, ConsumerGroup] = {}
        """Those of the consumer protocol (KIP-848); a name stands in one of the two only."""
        self.offsets = OffsetStore()

    def group(self, group_id: str) -> Group:
        """The group as it is; Dead where there is none."""
        return self.groups.get(group_id, _DEAD)

    def hold_offsets(self, group_id: str) -> None:
        """There are positions of the group; where there is no group, they make a simple one."""
        if group_id not in self.consumers:
            self.groups.setdefault(group_id, Empty())

    def put(self, group_id: str, group: Group) -> None:
        """The group is `group` from now on."""
        if isinstance(group, Dead):
            self.groups.pop(group_id, None)
        else:
            self.groups[group_id] = group


def apply(state: GroupShardState, record: GroupRecord) -> GroupShardState:
    """Take over one record; the same at its append and in replay. Offsets of no known group make a simple group."""
    if isinstance(record, CONSUMER_RECORDS):
        _apply_consumer(state, record)
        return state
    match record:
        case OffsetCommitted():
            state.hold_offsets(record.group_id)
            state.offsets.apply(record)
        case OffsetPending():
            state.hold_offsets(record.commit.group_id)
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
    """Records of a consumer group make it; the tombstone of its epoch unmakes it, and its positions stay."""
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
            state.hold_offsets(group_id)


class GroupRecords:
    """How a shard of groups folds: what the runtime asks of a `Machine`."""

    def empty(self) -> GroupShardState:
        """No groups."""
        return GroupShardState()

    def apply(self, state: GroupShardState, record: GroupRecord) -> GroupShardState:
        """The fold step that runtime and replay share."""
        return apply(state, record)

    def encode(self, record: GroupRecord) -> KeyValue:
        """The record as the log keeps it."""
        return encode(record)

    def replay(self, state: GroupShardState, batch: ReplayedBatch) -> int:
        """Fold one batch; return how many records were of unknown kinds. Raises LogUnreadable, with the offset."""
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
