"""What one partition of `__consumer_offsets` folds to: its groups and their positions."""

from collections.abc import Iterable
from typing import assert_never

from fencepost.coordinator.group.codec import CorruptRecord, decode
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
from fencepost.coordinator.ports import ReplayedBatch

_DEAD = Dead()


class Ledger:
    """The groups of one partition, in memory; changed by records, turns and the ends of transactions."""

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


def apply(ledger: Ledger, record: GroupRecord) -> Ledger:
    """Take over one record; the same at its append and in replay. Offsets of no known group make a simple group."""
    if isinstance(record, CONSUMER_RECORDS):
        _apply_consumer(ledger, record)
        return ledger
    match record:
        case OffsetCommitted():
            ledger.hold_offsets(record.group_id)
            ledger.offsets.apply(record)
        case OffsetPending():
            ledger.hold_offsets(record.commit.group_id)
            ledger.offsets.apply(record)
        case OffsetRemoved():
            ledger.offsets.apply(record)
        case GroupSaved():
            ledger.groups[record.group_id] = restored(record)
            ledger.consumers.pop(record.group_id, None)
        case GroupRemoved():
            ledger.groups.pop(record.group_id, None)
        case _:
            assert_never(record)
    return ledger


def _apply_consumer(ledger: Ledger, record: ConsumerRecord) -> None:
    """Records of a consumer group make it; the tombstone of its epoch unmakes it, and its positions stay."""
    group_id = record.group_id
    group = ledger.consumers.get(group_id)
    removes = not record.there if isinstance(record, TopicsRecord) else record.value is None
    if group is None:
        if removes:
            return
        group = ledger.consumers[group_id] = ConsumerGroup(group_id)
        ledger.groups.pop(group_id, None)
    group.apply(record)
    if isinstance(record, EpochRecord) and removes:
        del ledger.consumers[group_id]
        if ledger.offsets.has_any(group_id):
            ledger.hold_offsets(group_id)


def replay(ledger: Ledger, batches: Iterable[ReplayedBatch]) -> int:
    """Fold a log into `ledger` and return how many records were of a kind not known here (and passed over).

    Raises CorruptRecord, which names the batch's offset.
    """
    unknown = 0
    for batch in batches:
        if batch.marker_commits is not None:
            ledger.offsets.complete(batch.producer_id, batch.marker_commits)
            continue
        for key, value in batch.records:
            try:
                record: GroupRecord | None = decode(key, value)
            except CorruptRecord as error:
                raise CorruptRecord(f"in the batch at offset {batch.base_offset}: {error}") from error
            if record is None:
                unknown += 1
                continue
            if batch.transactional and isinstance(record, OffsetCommitted):
                record = OffsetPending(batch.producer_id, record)
            apply(ledger, record)
    return unknown
