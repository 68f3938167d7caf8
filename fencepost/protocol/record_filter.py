"""Removes records from a batch of a log: the others keep their offset, their timestamp and their bytes.

Compaction does not decode and encode records: header keys in an unknown encoding, overlong varints and the like stay
unchanged. Only a new delete horizon, which replaces the base timestamp, requires other timestamp deltas.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fencepost.protocol.batch_header import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
    pack_header,
)
from fencepost.protocol.varints import put_signed_varint, wrapped

_NO_TIMESTAMP_MS = -1
_VARINT_BITS_MAX = 63


class RawRecord(NamedTuple):
    """The position of one record in its batch's decompressed bytes."""

    offset: int
    timestamp_ms: int
    """From its own delta; with LogAppendTime the batch's timestamp is valid instead."""
    key: bytes | None
    has_value: bool
    """False for a tombstone."""
    start: int
    """The position of its length."""
    rest: int
    """The position of its offset delta: from there on its bytes do not depend on the batch's base timestamp."""
    end: int


def scan(body: bytes | bytearray, header: BatchHeader) -> Iterator[RawRecord]:
    """The records in the decompressed bytes of a batch. Raises CorruptBatch if they do not fit the header."""
    at, last_delta = 0, -1
    new = tuple.__new__
    try:
        for _ in range(header.record_count):
            start = at
            size, at = zigzag_at(body, at)
            end = at + size
            time_delta, rest = zigzag_at(body, at + 1)
            delta, at = zigzag_at(body, rest)
            key_size, at = zigzag_at(body, at)
            key = None
            if key_size >= 0:
                key = bytes(body[at : at + key_size])
                at += key_size
            value_size, at = zigzag_at(body, at)
            if not last_delta < delta <= header.last_offset_delta or at + max(value_size, 0) >= end or end > len(body):
                raise CorruptBatch(f"the record at byte {start} does not fit the batch at offset {header.base_offset}")
            last_delta = delta
            offset, timestamp_ms = header.base_offset + delta, wrapped(header.base_timestamp + time_delta)
            yield new(RawRecord, (offset, timestamp_ms, key, value_size >= 0, start, rest, end))
            at = end
    except IndexError:
        raise CorruptBatch(f"the batch at offset {header.base_offset} ends within a record") from None
    if at != len(body):
        raise CorruptBatch(f"the batch at offset {header.base_offset} has {len(body) - at} bytes after its last record")


def filtered(
    header: BatchHeader, body: bytes | bytearray, kept: Sequence[RawRecord], delete_horizon_ms: int | None = None
) -> tuple[BatchHeader, bytes]:
    """Header and uncompressed bytes of a batch with only the records `kept`, at least one.

    The batch keeps its range of offsets, so its next offset and last sequence do not change. `delete_horizon_ms`
    replaces the base timestamp by a delete horizon (KIP-534).
    """
    assert kept, "a batch without records is made by `emptied`"
    timestamp_ms = header.max_timestamp if header.timestamp_type else max(record.timestamp_ms for record in kept)
    header = header._replace(record_count=len(kept), max_timestamp=timestamp_ms)
    if delete_horizon_ms is None:
        return header, b"".join([body[record.start : record.end] for record in kept])
    header = header._replace(attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=delete_horizon_ms)
    parts: list[bytes | bytearray] = []
    for record in kept:
        time = put_signed_varint(wrapped(record.timestamp_ms - delete_horizon_ms))
        parts += (
            put_signed_varint(1 + len(time) + record.end - record.rest),
            b"\0",
            time,
            body[record.rest : record.end],
        )
    return header, b"".join(parts)


def packed(header: BatchHeader, body: bytes) -> tuple[BatchHeader, bytearray]:
    """The batch of a header and bytes that are already compressed as it states, with new length and CRC."""
    batch = bytearray(HEADER_SIZE)
    batch += body
    header = header._replace(batch_length=len(batch) - LOG_OVERHEAD)
    pack_header(batch, 0, header)
    return header, batch


def emptied(header: BatchHeader) -> tuple[BatchHeader, bytearray]:
    """The batch without its records; offsets, producer, epoch, sequence and timestamp do not change (row L6)."""
    kinds = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
    assert not kinds & CODEC_MASK, "nothing is left to compress"
    return packed(
        header._replace(attributes=header.attributes & kinds, base_timestamp=_NO_TIMESTAMP_MS, record_count=0), b""
    )


def vacated(header: BatchHeader) -> tuple[BatchHeader, bytearray]:
    """An empty batch without a producer over the same offsets, which only keeps the next batch's offset known."""
    kinds = header.attributes & LOG_APPEND_TIME_BIT
    return emptied(header._replace(attributes=kinds, producer_id=-1, producer_epoch=-1, base_sequence=-1))


def zigzag_at(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """The signed varint at `at`, and its end. Raises CorruptBatch for more than 64 bits, IndexError at the end."""
    value = data[at]
    at += 1
    if value > 127:
        value &= 127
        shift = 7
        while (byte := data[at]) > 127:
            value |= (byte & 127) << shift
            at += 1
            shift += 7
            if shift > _VARINT_BITS_MAX:
                raise CorruptBatch(f"varint before byte {at} of the records is too long")
        value |= byte << shift
        at += 1
    return (value >> 1) ^ -(value & 1), at
