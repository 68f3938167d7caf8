"""Control records: the markers that end a transaction, one record in a control batch (row 1 and 3 of section 0)."""

import struct
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from fencepost.protocol.batch_header import (
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    CorruptBatch,
    pack_header,
    read_header,
)
from fencepost.protocol.records import decode_records

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_KEY_VERSION = 0
_VALUE_VERSION = 0
_RECORD = struct.Struct(">bbbbb hh b hi b")
"""A marker's one record: length, attributes, two deltas, key length; key; value length; value; header count."""
_LENGTHS = tuple(2 * size for size in (_RECORD.size - 1, _KEY.size, _VALUE.size))
"""The lengths of the record, its key and its value, as one-byte zigzag varints."""
MARKER_SIZE = HEADER_SIZE + _RECORD.size
"""The size of a marker in a log, if its timestamp delta is 0."""


class ControlType(IntEnum):
    """The type of a control record: the second int16 of its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(NamedTuple):
    """The marker of a transaction: `type` is ABORT or COMMIT, `version` that of the value."""

    type: ControlType
    version: int
    coordinator_epoch: int


def end_txn_marker(
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytearray:
    """The batch that commits or aborts the records of `producer_id` in a partition since its last marker.

    Every transaction writes one to each of its partitions, and all have the same layout: so it is packed by a struct,
    not built from records.
    """
    marker = bytearray(MARKER_SIZE)
    record, key, value = _LENGTHS
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    _RECORD.pack_into(
        marker, HEADER_SIZE, record, 0, 0, 0, key, _KEY_VERSION, kind, value, _VALUE_VERSION, coordinator_epoch, 0
    )
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=MARKER_SIZE - LOG_OVERHEAD,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=CONTROL_BIT | TRANSACTIONAL_BIT,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        record_count=1,
    )
    pack_header(marker, 0, header)
    return marker


@lru_cache(maxsize=16)
def same_marker(
    producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> tuple[bytes, BatchHeader]:
    """`end_txn_marker` and its header, created once for all partitions of a transaction.

    Only offset and leader epoch differ between partitions, and the CRC does not cover them: the caller sets them in its
    own copy before the append.
    """
    marker = end_txn_marker(producer_id, producer_epoch, commit, coordinator_epoch, timestamp_ms)
    return bytes(marker), read_header(marker)


def control_type(buffer: Buffer, start: int, header: BatchHeader) -> ControlType | None:
    """The type of the control batch at `start`; None for an unknown (later) one, which readers skip.

    Raises CorruptBatch if the batch is not a control batch or its record has no readable key.
    """
    return _type_of(_key_and_value(buffer, start, header)[0], start)


def read_marker(buffer: Buffer, start: int, header: BatchHeader) -> EndTxnMarker:
    """The marker in the control batch at `start`. Raises CorruptBatch if it is neither ABORT nor COMMIT.

    Later versions of key and value may be longer: the known fields are read, the rest is skipped.
    """
    key, value = _key_and_value(buffer, start, header)
    kind = _type_of(key, start)
    if kind is not ControlType.ABORT and kind is not ControlType.COMMIT:
        raise CorruptBatch(f"control batch at byte {start}: {kind!r} does not end a transaction")
    if value is None or len(value) < _VALUE.size:
        raise CorruptBatch(f"control batch at byte {start}: the marker's value is shorter than {_VALUE.size} bytes")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    return EndTxnMarker(kind, version, coordinator_epoch)


def _key_and_value(buffer: Buffer, start: int, header: BatchHeader) -> tuple[bytes, bytes | None]:
    if not header.is_control:
        raise CorruptBatch(f"batch at byte {start}: not a control batch")
    records = decode_records(buffer, start, header)
    if not records:
        raise CorruptBatch(f"control batch at byte {start}: holds no record")
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch(f"control batch at byte {start}: the key is shorter than {_KEY.size} bytes")
    return key, value


def _type_of(key: bytes, start: int) -> ControlType | None:
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"control batch at byte {start}: key version {version}")
    return ControlType(number) if number in ControlType.__members__.values() else None
