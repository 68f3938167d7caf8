"""The records of `__share_group_state`, and their bytes as Kafka writes them, so that its tools can read them."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from fencepost.coordinator.ports import KeyValue
from fencepost.coordinator.share.values import NOT_HELD, ShareKey, StateBatch
from fencepost.protocol.schema import (
    DecodeError,
    Int8,
    Int16,
    Int32,
    Int64,
    MessageValue,
    String,
    Uuid,
    Value,
    field,
    since,
)

NOT_KNOWN = -1
"""A delivery complete count that is not known (ShareGroupOffset.UNINITIALIZED_DELIVERY_COMPLETE_COUNT)."""


class Snapshot(NamedTuple):
    """The whole state of a share partition (ShareSnapshotValue)."""

    key: ShareKey
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    created_ms: int
    written_ms: int
    """Later than `created_ms` if nothing had changed since then: a snapshot of a cold share partition."""
    batches: tuple[StateBatch, ...]


class Update(NamedTuple):
    """What changed since the snapshot of that epoch (ShareUpdateValue)."""

    key: ShareKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class Removed(NamedTuple):
    """The share partition is deleted: a tombstone of its snapshot."""

    key: ShareKey


class Pending(NamedTuple):
    """An update that counts when the transaction of `producer_id` commits; in a transactional batch."""

    producer_id: int
    update: Update

    @property
    def key(self) -> ShareKey:
        return self.update.key


ShareRecord: TypeAlias = Snapshot | Update | Removed | Pending


class SharePartition(MessageValue, versions=(0, 0)):
    """ShareSnapshotKey and ShareUpdateKey, which differ only in the type before them."""

    group_id: String = ""
    topic_id: Uuid = bytes(16)
    partition: Int32 = 0


class BatchValue(Value):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0
    held_until_ms: Int64 = field(default=NOT_HELD, tag=1000)
    """Ours; Kafka's readers pass over it."""


class ShareSnapshotValue(MessageValue, versions=(0, 0), flexible=0):
    snapshot_epoch: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = since(0, default=NOT_KNOWN, tag=0)
    create_timestamp: Int64 = 0
    write_timestamp: Int64 = 0
    state_batches: list[BatchValue] = []


class ShareUpdateValue(MessageValue, versions=(0, 0), flexible=0):
    snapshot_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = since(0, default=NOT_KNOWN, tag=0)
    state_batches: list[BatchValue] = []


_SNAPSHOT, _UPDATE = b"\0\0", b"\0\1"
"""The type of a record (CoordinatorRecordType), before its key."""
_VERSION = b"\0\0"


class UnreadableRecord(Exception):
    """A record of `__share_group_state` cannot be read; the text names the record and the reason."""


def encode(record: ShareRecord) -> KeyValue:
    """The key and value of a record (ShareCoordinatorRecordHelpers); a value of None is a tombstone."""
    if isinstance(record, Pending):
        return encode(record.update)
    group_id, topic_id, partition = record.key
    name = SharePartition.encode(SharePartition(group_id=group_id, topic_id=topic_id, partition=partition), 0)
    if isinstance(record, Removed):
        return _SNAPSHOT + name, None
    if isinstance(record, Update):
        update = ShareUpdateValue(
            snapshot_epoch=record.snapshot_epoch,
            leader_epoch=record.leader_epoch,
            start_offset=record.start_offset,
            delivery_complete_count=record.delivery_complete_count,
            state_batches=_values(record.batches),
        )
        return _UPDATE + name, _VERSION + ShareUpdateValue.encode(update, 0)
    snapshot = ShareSnapshotValue(
        snapshot_epoch=record.snapshot_epoch,
        state_epoch=record.state_epoch,
        leader_epoch=record.leader_epoch,
        start_offset=record.start_offset,
        delivery_complete_count=record.delivery_complete_count,
        create_timestamp=record.created_ms,
        write_timestamp=record.written_ms,
        state_batches=_values(record.batches),
    )
    return _SNAPSHOT + name, _VERSION + ShareSnapshotValue.encode(snapshot, 0)


def _values(batches: Sequence[StateBatch]) -> list[BatchValue]:
    return [
        BatchValue(
            first_offset=one.first_offset,
            last_offset=one.last_offset,
            delivery_state=one.delivery_state,
            delivery_count=one.delivery_count,
            held_until_ms=one.held_until_ms,
        )
        for one in batches
    ]


def decode(key: bytes | None, value: bytes | None) -> ShareRecord | None:
    """The record in `key` and `value`; None for an unknown type (a later Kafka's, KIP-915). Raises UnreadableRecord."""
    if key is None or len(key) < 2:
        raise UnreadableRecord(f"a record of __share_group_state has the key {key!r}")
    kind = key[:2]
    if kind not in (_SNAPSHOT, _UPDATE):
        return None
    try:
        name = SharePartition.decode(key, 0, 2)
        share = ShareKey(name.group_id, name.topic_id, name.partition)
        if value is not None and value[:2] != _VERSION:
            raise UnreadableRecord(f"the value of {share} begins with the unknown version {value[:2]!r}")
        if value is None and kind == _SNAPSHOT:
            return Removed(share)
        if value is None:
            raise UnreadableRecord(f"the update of {share} has no value")
        if kind == _UPDATE:
            return _update(share, ShareUpdateValue.decode(value, 0, 2))
        return _snapshot(share, ShareSnapshotValue.decode(value, 0, 2))
    except DecodeError as error:
        raise UnreadableRecord(f"key {key!r} of __share_group_state: {error}") from error


def _update(key: ShareKey, value: ShareUpdateValue) -> Update:
    return Update(
        key,
        value.snapshot_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        _batches(value.state_batches),
    )


def _snapshot(key: ShareKey, value: ShareSnapshotValue) -> Snapshot:
    return Snapshot(
        key,
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        value.create_timestamp,
        value.write_timestamp,
        _batches(value.state_batches),
    )


def _batches(values: Sequence[BatchValue]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count, one.held_until_ms)
        for one in values
    )
