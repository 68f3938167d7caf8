"""The committed offsets of groups, and those that are pending in a transaction (rows G6, G7, T5, T6)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from fencepost.coordinator.group.records import CommittedOffset, OffsetCommitted, OffsetPending, OffsetRemoved
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class _Stored(NamedTuple):
    """A committed offset and its number in the order of the log."""

    order: int
    value: CommittedOffset


class FetchedOffset(NamedTuple):
    """The answer of OffsetFetch for one partition; an offset of -1 means that none is committed."""

    partition: TopicPartition
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE
    topic_id: bytes | None = None
    """The topic id of the commit; None if the client named the topic by its name."""


class OffsetCommitItem(NamedTuple):
    """One partition of a client's commit."""

    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    commit_timestamp_ms: int = -1
    """Set only by OffsetCommit v1."""
    topic_id: bytes | None = None
    """Set if the client names the topic by its id."""


class OffsetStore:
    """All offsets of one partition of `__consumer_offsets`; changed only by `apply` and `complete`.

    A transaction's offsets become visible at its marker, but are ordered by the place of their records in the log. So
    they do not replace a visible offset whose record came later (Kafka compacts the topic by that rule). The store
    counts that order itself: it is the same in replay and live, where a marker arrives a little late.
    """

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, _Stored]] = {}
        self._pending: dict[int, dict[str, dict[TopicPartition, _Stored]]] = {}
        self._open: dict[str, set[int]] = {}
        self._next = 0
        self.count = 0
        """How many offsets are stored, without the pending ones."""

    def apply(self, record: OffsetCommitted | OffsetPending | OffsetRemoved) -> None:
        self._next += 1
        if isinstance(record, OffsetCommitted):
            self._put(record.group_id, record.partition, _Stored(self._next, record.value))
        elif isinstance(record, OffsetPending):
            commit = record.commit
            groups = self._pending.setdefault(record.producer_id, {})
            groups.setdefault(commit.group_id, {})[commit.partition] = _Stored(self._next, commit.value)
            self._open.setdefault(commit.group_id, set()).add(record.producer_id)
        else:
            self._remove(record.group_id, record.partition)

    def complete(self, producer_id: int, commit: bool) -> None:
        """A transaction of `producer_id` ended: its pending offsets become visible, or are dropped."""
        for group_id, offsets in self._pending.pop(producer_id, {}).items():
            open_transactions = self._open[group_id]
            open_transactions.discard(producer_id)
            if not open_transactions:
                del self._open[group_id]
            if not commit:
                continue
            committed = self._committed.get(group_id, {})
            for partition, stored in offsets.items():
                existing = committed.get(partition)
                if existing is None or existing.order < stored.order:
                    self._put(group_id, partition, stored)

    def _put(self, group_id: str, partition: TopicPartition, stored: _Stored) -> None:
        offsets = self._committed.get(group_id)
        if offsets is None:
            offsets = self._committed[group_id] = {}
        if partition not in offsets:
            self.count += 1
        offsets[partition] = stored

    def _remove(self, group_id: str, partition: TopicPartition) -> None:
        offsets = self._committed.get(group_id)
        if offsets is not None and offsets.pop(partition, None) is not None:
            self.count -= 1
            if not offsets:
                del self._committed[group_id]
        for producer_id in self._open.get(group_id, ()):
            self._pending[producer_id].get(group_id, {}).pop(partition, None)

    def committed(self, group_id: str) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        for partition, stored in self._committed.get(group_id, {}).items():
            yield partition, stored.value

    def groups(self) -> Collection[str]:
        return self._committed.keys()

    def pending(self, group_id: str) -> frozenset[TopicPartition]:
        """The partitions with an offset that is pending in a transaction."""
        return frozenset(
            partition
            for producer_id in self._open.get(group_id, ())
            for partition in self._pending[producer_id].get(group_id, ())
        )

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction has written offsets of the group that have not been deleted since."""
        return any(self._pending[producer_id].get(group_id) for producer_id in self._open.get(group_id, ()))

    def has_any(self, group_id: str) -> bool:
        return group_id in self._committed or group_id in self._open

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, require_stable: bool
    ) -> list[FetchedOffset]:
        """The group's offsets in `partitions`, or (None) in all.

        With `require_stable` the error for a partition with a pending offset is UNSTABLE_OFFSET_COMMIT. So a consumer
        waits for the transaction of its predecessor instead of repeating its work (KIP-447, row T6).
        """
        offsets = self._committed.get(group_id, {})
        unstable = self.pending(group_id) if require_stable and group_id in self._open else frozenset()
        found: list[FetchedOffset] = []
        for partition in offsets if partitions is None else partitions:
            stored = offsets.get(partition)
            if partition in unstable:
                found.append(FetchedOffset(partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif stored is None:
                found.append(FetchedOffset(partition))
            else:
                value = stored.value
                fields = (value.offset, value.leader_epoch, value.metadata, ErrorCode.NONE, value.topic_id)
                found.append(FetchedOffset(partition, *fields))
        return found

    def removals(self, group_id: str) -> list[OffsetRemoved]:
        """The tombstones of all the group's offsets, pending ones too."""
        partitions = {*self._committed.get(group_id, ()), *self.pending(group_id)}
        return [OffsetRemoved(group_id, partition) for partition in sorted(partitions)]

    def removals_of_topics(self, gone: Collection[str]) -> list[OffsetRemoved]:
        """The tombstones of all offsets in the topics `gone`, pending ones too."""
        groups = sorted({*self._committed, *self._open})
        return [removal for group in groups for removal in self.removals(group) if removal.partition.topic in gone]

    def removals_of_deleted_topics(self, topic_id: Callable[[str], bytes | None]) -> list[OffsetRemoved]:
        """The tombstones of all offsets in deleted topics: `topic_id` has no such name, or another id for it."""
        removals: list[OffsetRemoved] = []
        for group in sorted({*self._committed, *self._open}):
            named = {partition: stored.value.topic_id for partition, stored in self._committed.get(group, {}).items()}
            for removal in self.removals(group):
                current_id = topic_id(removal.partition.topic)
                if current_id is None or named.get(removal.partition) not in (None, current_id):
                    removals.append(removal)
        return removals


def commit_records(
    group_id: str, items: Sequence[OffsetCommitItem], retention_ms: int, metadata_max_size: int, now_ms: int
) -> tuple[list[OffsetCommitted], list[ErrorCode]]:
    """The records of a commit and an error per item; an item with OFFSET_METADATA_TOO_LARGE is left out.

    `retention_ms` is -1 unless OffsetCommit v2-4 has its own retention.
    """
    expire_timestamp_ms = now_ms + retention_ms if retention_ms >= 0 else -1
    records: list[OffsetCommitted] = []
    errors: list[ErrorCode] = []
    for item in items:
        metadata = item.metadata or ""
        if len(metadata) > metadata_max_size:
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        timestamp_ms = item.commit_timestamp_ms if item.commit_timestamp_ms >= 0 else now_ms
        times = (timestamp_ms, expire_timestamp_ms)
        value = CommittedOffset(item.offset, item.leader_epoch, metadata, *times, item.topic_id)
        records.append(OffsetCommitted(group_id, item.partition, value))
        errors.append(ErrorCode.NONE)
    return records, errors
