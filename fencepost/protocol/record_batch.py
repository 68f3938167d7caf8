"""Record batches, format v2: building a whole batch from records."""

from collections.abc import Sequence

from fencepost.protocol.batch_header import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    pack_header,
)
from fencepost.protocol.compression import Compression, compress
from fencepost.protocol.records import NewRecord, Record, encode_records


def build_batch(
    records: Sequence[Record | NewRecord],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    timestamp_type: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    leader_epoch: int = -1,
    log_append_time_ms: int | None = None,
    last_offset_delta: int | None = None,
    extra_attributes: int = 0,
) -> bytearray:
    """One batch of `Record`s (which keep their offsets) or (timestamp_ms, key, value, headers) tuples, CRC included.

    `log_append_time_ms` makes it a LogAppendTime batch of that time. `last_offset_delta` is for compaction, which keeps
    a batch's offset range when it removes the last records. Without records it is the empty batch that compaction
    leaves. `level` is the codec's (KIP-390; None: its default).
    Raises ValueError if offsets do not rise or exceed `last_offset_delta`.
    """
    base_timestamp = (records[0][1] if isinstance(records[0], Record) else records[0][0]) if records else -1
    batch, last_delta, max_timestamp = encode_records(records, base_timestamp, base_offset, HEADER_SIZE)
    if last_offset_delta is None:
        last_offset_delta = max(last_delta, 0)
    elif last_delta > last_offset_delta:
        raise ValueError(f"records reach offset delta {last_delta}, the batch ends at {last_offset_delta}")
    if records and compression is not Compression.NONE:
        with memoryview(batch) as view, view[HEADER_SIZE:] as body:
            packed = compress(compression, body, level)
        batch[HEADER_SIZE:] = packed
    attributes = compression | extra_attributes
    if log_append_time_ms is not None:
        timestamp_type, max_timestamp = 1, log_append_time_ms
    if timestamp_type:
        attributes |= LOG_APPEND_TIME_BIT
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=len(batch) - LOG_OVERHEAD,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    pack_header(batch, 0, header)
    return batch


def build_own_batch(
    timestamp_ms: int,
    records: Sequence[tuple[bytes | None, bytes | None]],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> tuple[bytearray, BatchHeader]:
    """`build_batch` for coordinators: keys and values with one timestamp. Also returns the header, without its CRC."""
    timed = [(timestamp_ms, key, value, ()) for key, value in records]
    batch, last_delta, _ = encode_records(timed, timestamp_ms, reserved=HEADER_SIZE)
    length, attributes = len(batch) - LOG_OVERHEAD, TRANSACTIONAL_BIT if transactional else 0
    producer = producer_id, producer_epoch, -1
    header = BatchHeader(
        0, length, -1, MAGIC, 0, attributes, last_delta, timestamp_ms, timestamp_ms, *producer, len(records)
    )
    pack_header(batch, 0, header)
    return batch, header
