"""What one partition of `__consumer_offsets` folds to: its groups and their positions."""

from collections.abc import Iterable
from typing import assert_never

from fencepost.coordinator.group.codec import CorruptRecord, decode
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
        self.offsets = OffsetStore()

    def group(self, group_id: str) -> Group:
        """The group as it is; Dead where there is none."""
        return self.groups.get(group_id, _DEAD)

    def put(self, group_id: str, group: Group) -> None:
        """The group is `group` from now on."""
        if isinstance(group, Dead):
            self.groups.pop(group_id, None)
        else:
            self.groups[group_id] = group


def apply(ledger: Ledger, record: GroupRecord) -> Ledger:
    """Take over one record; the same at its append and in replay. Offsets of no known group make a simple group."""
    match record:
        case OffsetCommitted():
            ledger.groups.setdefault(record.group_id, Empty())
            ledger.offsets.apply(record)
        case OffsetPending():
            ledger.groups.setdefault(record.commit.group_id, Empty())
            ledger.offsets.apply(record)
        case OffsetRemoved():
            ledger.offsets.apply(record)
        case GroupSaved():
            ledger.groups[record.group_id] = restored(record)
        case GroupRemoved():
            ledger.groups.pop(record.group_id, None)
        case _:
            assert_never(record)
    return ledger


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
