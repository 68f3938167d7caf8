"""Validation of a batch before its append, and the changes that the broker makes to it (rows P2, L7, L8, L9, L15).

The header decides nearly everything. Records are decoded only if a rule needs them: keys on a compacted topic,
timestamps that the header cannot prove, another `compression.type`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import crc32c

from fencepost.broker.log.config import LZ4_DEFAULT_LEVEL, NEVER_MS, LogConfig
from fencepost.broker.log.producer_state import AppendOrigin, Refusal
from fencepost.broker.log.storage.store import Bytes
from fencepost.protocol.batch_header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
    InvalidBatch,
    read_header,
    set_log_append_time,
)
from fencepost.protocol.compression import Compression, DecompressionLimit
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record, decode_records

_CODEC_BY_NAME = {
    "uncompressed": Compression.NONE,
    "none": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_CLIENT = AppendOrigin.CLIENT  # a global: reading a member from its enum costs twenty times as much
_LENGTH_AT = 8
_MAGIC_AT = 16
_CRC_AT = 17
_CRC_FROM = 21
_RECORD_ERRORS_MAX = 1000
CHECKED_RECORDS_MAX = 50_000
CHECKED_BYTES_MAX = 16 << 20
"""The largest batch whose records are checked one by one: its records, and their bytes after decompression.

A small compressed batch can become a hundred times as large. Java's producer splits a batch that is too large."""
_NOT_FOR_CLIENTS = CONTROL_BIT | DELETE_HORIZON_BIT | LOG_APPEND_TIME_BIT


class Accepted(NamedTuple):
    """A valid batch: its bytes, which are writable, its header, and the broker's timestamp (-1: none)."""

    batch: bytearray | memoryview
    header: BatchHeader
    log_append_time_ms: int


def check_batch(
    batch: bytes | bytearray | memoryview, config: LogConfig, origin: AppendOrigin, now_ms: int
) -> Accepted | Refusal:
    """Validate one whole batch, and convert it to its stored form; offsets are assigned later.

    A writable `batch` is changed in place.
    """
    try:
        header = read_header(batch)
    except CorruptBatch as error:
        return _unreadable(batch, error)
    size_bytes = header.batch_length + LOG_OVERHEAD
    if size_bytes != len(batch):
        return _invalid(f"{len(batch) - size_bytes} bytes follow the batch: one batch is written at a time")
    if size_bytes > config.max_message_bytes:
        return _too_large(size_bytes, config)
    if crc32c.crc32c(memoryview(batch)[_CRC_FROM:]) != header.crc:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, "the batch's CRC-32C does not match its bytes")
    if origin is _CLIENT:
        refusal = _check_client_header(header)
        if refusal is not None:
            return refusal
    if isinstance(batch, bytes) or (isinstance(batch, memoryview) and batch.readonly):
        batch = bytearray(batch)
    if config.keeps_batches and size_bytes <= config.segment_bytes:
        bound_ms = config.message_timestamp_after_max_ms
        if header.max_timestamp - now_ms <= bound_ms or origin is not _CLIENT:
            return tuple.__new__(Accepted, (batch, header, -1))
    if _needs_records(header, config, origin, now_ms):
        return _check_records(batch, header, config, now_ms)
    return _fit(batch, header, config, now_ms)


def check_own(batch: Bytes, header: BatchHeader, config: LogConfig, now_ms: int) -> Accepted | Refusal:
    """Check the size of a batch that the broker built; its header needs no validation."""
    assert isinstance(batch, bytearray), "the offset is written into it"
    size_bytes = len(batch)
    return (
        _too_large(size_bytes, config) if size_bytes > config.max_message_bytes else _fit(batch, header, config, now_ms)
    )


def _unreadable(batch: bytes | bytearray | memoryview, error: CorruptBatch) -> Refusal:
    """Row L8: CORRUPT_MESSAGE, after which clients retry, only if the transport may have damaged the batch."""
    if isinstance(error, InvalidBatch):
        damaged = not _crc_matches(batch, int.from_bytes(batch[_CRC_AT:_CRC_FROM], "big"))
    elif len(batch) > _MAGIC_AT and batch[_MAGIC_AT] < MAGIC:
        return _invalid(f"magic {batch[_MAGIC_AT]}: Produce v3 and later carry batches of magic {MAGIC} only")
    else:
        # The frame arrived completely, so a batch that is too short was sent like that.
        claimed = int.from_bytes(batch[_LENGTH_AT:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
        damaged = len(batch) >= LOG_OVERHEAD and claimed <= len(batch)
    return Refusal(ErrorCode.CORRUPT_MESSAGE if damaged else ErrorCode.INVALID_RECORD, str(error))


def _crc_matches(batch: bytes | bytearray | memoryview, crc: int) -> bool:
    return bool(crc32c.crc32c(memoryview(batch)[_CRC_FROM:]) == crc)


def _check_client_header(header: BatchHeader) -> Refusal | None:
    """Row L8: the values that a producer may send in a header."""
    base_offset, _, _, _, _, attributes, last_offset_delta, _, _, producer_id, epoch, sequence, record_count = header
    if base_offset != 0:
        return _invalid(f"base offset is {base_offset}, producers send 0")
    if record_count != last_offset_delta + 1 or record_count <= 0:
        return _invalid(f"{record_count} records, but last offset delta {last_offset_delta}")
    if attributes & _NOT_FOR_CLIENTS:
        return _reserved_attribute(header)
    if producer_id >= 0:
        if sequence < 0 or epoch < 0:
            return _invalid(f"producer {producer_id} with epoch {epoch} and sequence {sequence}")
    elif attributes & TRANSACTIONAL_BIT:
        return _invalid("a transactional batch without a producer id")
    return None


def _reserved_attribute(header: BatchHeader) -> Refusal:
    if header.attributes & CONTROL_BIT:
        return _invalid("clients may not write control batches")
    if header.attributes & DELETE_HORIZON_BIT:
        return _invalid("clients may not write delete horizons")
    why = "producers may not set the timestamp type to LogAppendTime"
    everyone = range(min(header.record_count, _RECORD_ERRORS_MAX))
    return Refusal(ErrorCode.INVALID_TIMESTAMP, why, tuple((index, why) for index in everyone))


def _needs_records(header: BatchHeader, config: LogConfig, origin: AppendOrigin, now_ms: int) -> bool:
    if origin is not _CLIENT:
        return False
    if config.compacted or (
        config.compression_type != "producer" and _target_codec(header, config) != header.compression
    ):
        return True
    if config.stamps_append_time:
        return False
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        return True
    # The header holds the latest timestamp, not the earliest: a finite bound on the past needs the records.
    return config.message_timestamp_before_max_ms < NEVER_MS


def _check_records(
    batch: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> Accepted | Refusal:
    if header.record_count > CHECKED_RECORDS_MAX:
        return _too_many(f"batch of {header.record_count} records")
    try:
        records = decode_records(batch, 0, header, max(CHECKED_BYTES_MAX, config.max_message_bytes))
    except CorruptBatch as error:
        if isinstance(error.__cause__, DecompressionLimit):
            return _too_many(str(error))
        return _invalid(str(error))  # the checksum matches, so the client sent it like this
    refusal = _check_each(records, config, now_ms)
    if refusal is not None:
        return refusal
    if _must_rebuild(header, records, config):
        batch = _rebuilt(header, records, config)
        header = read_header(batch)
        if len(batch) > config.max_message_bytes:
            return _too_large(len(batch), config)
    return _fit(batch, header, config, now_ms)


def _check_each(records: Sequence[Record], config: LogConfig, now_ms: int) -> Refusal | None:
    """Rows L7, L9, L15: keys for a compacted topic and KIP-937's bounds; one bad record rejects the whole batch."""
    errors: list[tuple[int, str]] = []
    earliest_ms = now_ms - config.message_timestamp_before_max_ms
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    compacted, bounded, mistimed = config.compacted, not config.stamps_append_time, False
    for index, record in enumerate(records):
        timestamp_ms = record.timestamp_ms
        if compacted and record.key is None:
            errors.append((index, "a compacted topic needs a key"))
        elif bounded and timestamp_ms != -1 and not earliest_ms <= timestamp_ms <= latest_ms:
            errors.append((index, f"timestamp {timestamp_ms} is outside [{earliest_ms}, {latest_ms}]"))
            mistimed = True
    if not errors:
        return None
    code = ErrorCode.INVALID_TIMESTAMP if mistimed else ErrorCode.INVALID_RECORD
    why = f"{len(errors)} of {len(records)} records were refused, the first of them because {errors[0][1]}"
    return Refusal(code, why, tuple(errors[:_RECORD_ERRORS_MAX]))


def _must_rebuild(header: BatchHeader, records: Sequence[Record], config: LogConfig) -> bool:
    """Whether the batch must be rebuilt: for another codec, or because its header or offsets contradict its records."""
    if _target_codec(header, config) != header.compression:
        return True
    if any(record.offset != index for index, record in enumerate(records)):
        return True
    return not config.stamps_append_time and max(record.timestamp_ms for record in records) != header.max_timestamp


def _rebuilt(header: BatchHeader, records: Sequence[Record], config: LogConfig) -> bytearray:
    """The same records with consecutive offsets, in the topic's codec (row L9, KIP-390)."""
    codec = _target_codec(header, config)
    return build_batch(
        [(record.timestamp_ms, record.key, record.value, record.headers) for record in records],
        compression=codec,
        level=_level(codec, config),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        leader_epoch=header.partition_leader_epoch,
    )


def _fit(batch: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> Accepted | Refusal:
    """The last steps: check that the stored batch fits a segment, and set LogAppendTime if configured."""
    size_bytes = header.batch_length + LOG_OVERHEAD
    if size_bytes > config.segment_bytes:
        return Refusal(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"batch of {size_bytes} bytes, a segment holds {config.segment_bytes}"
        )
    if not config.stamps_append_time or header.is_control:
        return Accepted(batch, header, -1)
    set_log_append_time(batch, 0, now_ms)
    return Accepted(batch, read_header(batch), now_ms)


def _target_codec(header: BatchHeader, config: LogConfig) -> Compression:
    if config.compression_type == "producer":
        return header.compression
    return _CODEC_BY_NAME[config.compression_type]


def _level(codec: Compression, config: LogConfig) -> int | None:
    """The configured level of a codec; None for the codec's default."""
    match codec:
        case Compression.GZIP:
            return None if config.compression_gzip_level == -1 else config.compression_gzip_level
        case Compression.LZ4:
            return None if config.compression_lz4_level == LZ4_DEFAULT_LEVEL else config.compression_lz4_level
        case Compression.ZSTD:
            return config.compression_zstd_level
        case Compression.NONE | Compression.SNAPPY:
            return None


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_RECORD, why)


def _too_many(what: str) -> Refusal:
    why = "the records of this batch must be checked one by one"
    most = f"at most {CHECKED_RECORDS_MAX} records and {CHECKED_BYTES_MAX} bytes"
    return Refusal(ErrorCode.MESSAGE_TOO_LARGE, f"{what}: {why}, and for that it may have {most}; send smaller batches")


def _too_large(size_bytes: int, config: LogConfig) -> Refusal:
    return Refusal(
        ErrorCode.MESSAGE_TOO_LARGE, f"batch of {size_bytes} bytes, at most {config.max_message_bytes} are allowed"
    )
