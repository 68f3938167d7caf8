"""The state that one partition of `__share_group_state` folds to (Kafka's ShareCoordinatorShard)."""

from collections.abc import Collection, Iterable
from itertools import chain
from typing import assert_never

from fencepost.coordinator.ports import KeyValue, LogUnreadable, ReplayedBatch
from fencepost.coordinator.share.batches import combine
from fencepost.coordinator.share.pending import PendingAcks
from fencepost.coordinator.share.records import (
    Pending,
    Removed,
    ShareRecord,
    Snapshot,
    UnreadableRecord,
    Update,
    decode,
    encode,
)
from fencepost.coordinator.share.values import UNINITIALIZED, DeliveryState, ShareKey, StateBatch

UNCOMBINED_MAX = 64
"""This many new batches wait before they are combined with the others; more of them, if there are more others."""


class ShareState:
    """One share partition, in memory; records change it. Timestamps are in ms."""

    __slots__ = (
        "_combined",
        "_new",
        "created_ms",
        "delivery_complete_count",
        "leader_epoch",
        "newest_leader_epoch",
        "newest_state_epoch",
        "snapshot_epoch",
        "snapshot_offset",
        "start_offset",
        "state_epoch",
        "updates",
        "written_ms",
    )

    def __init__(self, leader_epoch: int) -> None:
        self.snapshot_epoch = self.state_epoch = self.newest_state_epoch = 0
        self.leader_epoch = self.newest_leader_epoch = leader_epoch
        """Of the newest record; and the newest of all since the share partition began, below which leaders are fenced.
        An initialization sets the first one to 0, and not the second."""
        self.start_offset = UNINITIALIZED
        self.delivery_complete_count = -1
        self.created_ms = self.written_ms = 0
        self.updates = 0
        """The updates since the last snapshot that came because of their number."""
        self.snapshot_offset: int | None = None
        """Where the last snapshot is in the log; None: not known."""
        self._combined: tuple[StateBatch, ...] = ()
        self._new: list[StateBatch] = []

    @property
    def batches(self) -> tuple[StateBatch, ...]:
        """The batches from the start offset on, combined."""
        if self._new or (self._combined and self._combined[0].first_offset < self.start_offset):
            self._combined = combine((*self._combined, *self._new), self.start_offset)
            self._new.clear()
        return self._combined

    @property
    def batches_at_most(self) -> int:
        """As many as there would be if none of the new ones could be combined with others."""
        return len(self._combined) + len(self._new)

    def restore(self, record: Snapshot, updates_per_snapshot: int) -> None:
        """Take the state of a snapshot (ShareCoordinatorShard.handleShareSnapshot)."""
        self.snapshot_epoch, self.state_epoch = record.snapshot_epoch, record.state_epoch
        self.leader_epoch, self.start_offset = record.leader_epoch, record.start_offset
        self.delivery_complete_count = record.delivery_complete_count
        self.created_ms, self.written_ms = record.created_ms, record.written_ms
        self._combined = record.batches
        self._new.clear()
        self.newest_leader_epoch = max(self.newest_leader_epoch, record.leader_epoch)
        self.newest_state_epoch = max(self.newest_state_epoch, record.state_epoch)
        if self.updates >= updates_per_snapshot:
            self.updates = 0

    def update(self, record: Update) -> None:
        """Add what changed (ShareCoordinatorShard.handleShareUpdate and merge).

        Its batches are combined with the others when they are needed, or when they are many.
        """
        if record.start_offset != UNINITIALIZED:
            self.start_offset = record.start_offset
        if record.leader_epoch != -1:
            self.leader_epoch = record.leader_epoch
        self.delivery_complete_count = record.delivery_complete_count
        self.newest_leader_epoch = max(self.newest_leader_epoch, record.leader_epoch)
        self.updates += 1
        self.merge(record.batches)

    def merge(self, batches: Iterable[StateBatch]) -> None:
        """Add changed batches. The rest stays: what a transaction acknowledged says nothing of it."""
        self._new += batches
        if len(self._new) > max(UNCOMBINED_MAX, len(self._combined)):
            self._combined = self.batches


class ShareShardState:
    """The share partitions of one partition, in memory; records change it."""

    def __init__(self) -> None:
        self.shares: dict[ShareKey, ShareState] = {}
        self.pending = PendingAcks()
        self._newest = 0
        """Where the last snapshot or tombstone is."""

    def place(self, records: Iterable[ShareRecord], base_offset: int) -> None:
        """Note where applied records are in the log: one after another from `base_offset` on.

        What is noted late changes nothing that newer records have said.
        """
        for offset, record in enumerate(records, base_offset):
            if isinstance(record, Update):
                continue
            if isinstance(record, Pending):
                self.pending.place(record.producer_id, offset)
                continue
            self._newest = max(self._newest, offset)
            if (share := self.shares.get(record.key)) is not None:
                share.snapshot_offset = max(share.snapshot_offset or 0, offset)

    def complete(self, producer_id: int, commit: bool) -> Collection[ShareKey]:
        """A transaction of `producer_id` ended: what it acknowledged is done, or available again, delivered once more.

        Returns the share partitions. Their snapshots do not have it: the log keeps its records until there is one that
        has.
        """
        ended, since = self.pending.take(producer_id)
        for key, batches in ended.items():
            share = self.shares.get(key)
            if share is None:
                continue
            available = (batch._replace(delivery_state=DeliveryState.AVAILABLE) for batch in batches)
            share.merge(batches if commit else available)
            if share.snapshot_offset is not None:
                share.snapshot_offset = min(share.snapshot_offset, since)
        return ended.keys()

    @property
    def redundant_to(self) -> int:
        """The records below this offset are not needed to restore the state (ShareCoordinatorOffsetsManager).

        It is the offset of the oldest snapshot of those that are the last of their share partition. If there is no
        share partition, the last tombstone's. Records of open transactions are needed too.
        """
        offsets = (0 if share.snapshot_offset is None else share.snapshot_offset for share in self.shares.values())
        return min(chain(offsets, self.pending.first_offsets), default=self._newest)


class ShareRecords:
    """How a shard of share partitions folds: the runtime's `Machine`."""

    def __init__(self, updates_per_snapshot: int) -> None:
        self._updates_per_snapshot = updates_per_snapshot

    def empty(self) -> ShareShardState:
        """No share partition."""
        return ShareShardState()

    def apply(self, state: ShareShardState, record: ShareRecord) -> ShareShardState:
        """Apply one record. An update without a snapshot begins a share partition: its snapshot follows in the log."""
        match record:
            case Snapshot():
                share = state.shares.get(record.key) or ShareState(record.leader_epoch)
                share.restore(record, self._updates_per_snapshot)
                state.shares[record.key] = share
            case Update():
                share = state.shares.get(record.key) or ShareState(record.leader_epoch)
                share.update(record)
                state.shares[record.key] = share
            case Removed():
                state.shares.pop(record.key, None)
                state.pending.forget(record.key)
            case Pending():
                state.pending.add(record.producer_id, record.key, record.update.batches)
            case _:
                assert_never(record)
        return state

    def encode(self, record: ShareRecord) -> KeyValue:
        """The record as its log stores it."""
        return encode(record)

    def replay(self, state: ShareShardState, batch: ReplayedBatch) -> int:
        """Fold one batch into `state`; return how many records were of unknown kinds. Raises LogUnreadable."""
        if batch.marker_commits is not None:
            state.complete(batch.producer_id, batch.marker_commits)
            return 0
        unknown = 0
        for number, (key, value) in enumerate(batch.records):
            try:
                record: ShareRecord | None = decode(key, value)
            except UnreadableRecord as error:
                raise LogUnreadable(f"in the batch at offset {batch.base_offset}: {error}") from error
            if record is None:
                unknown += 1
                continue
            if batch.transactional and isinstance(record, Update):
                record = Pending(batch.producer_id, record)
            self.apply(state, record)
            state.place([record], batch.base_offset + number)
        return unknown
