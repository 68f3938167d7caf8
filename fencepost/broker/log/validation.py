"""Validation of a batch before its append, and the changes that the broker makes to it (rows P2, L7, L8, L9, L15).

The header decides nearly everything. Records are decoded only if a rule needs them: keys on a compacted topic,
timestamps that the header cannot prove, another `compression.type`.
"""

from typing import NamedTuple

import crc32c

from fencepost.broker.log.config import DECOMPRESSED_LIMIT, LZ4_DEFAULT_LEVEL, NEVER_MS, LogConfig
from fencepost.broker.log.producer_state import AppendOrigin, Refusal
from fencepost.broker.log.storage.store import Bytes
from fencepost.protocol.batch_header import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
    InvalidBatch,
    OversizedBatch,
    read_header,
    set_log_append_time,
)
from fencepost.protocol.compression import Compression, compress
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_check import CheckedRecords, RecordRules, check_records, times_fit
from fencepost.protocol.record_filter import packed
from fencepost.protocol.records import NewRecord, Record, decode_in_pieces, encode_records, unpack_records
from fencepost.protocol.varints import LONG_MAX

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
_CODEC_AT = 22
_RECORD_ERRORS_MAX = 1000
_INLINE_BYTES = 8 << 10
"""Up to this size a codec takes a fraction of a millisecond."""
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
    if (
        config.keeps_batches
        and size_bytes <= config.segment_bytes
        and (origin is not _CLIENT or _header_proves_times(batch, header, config, now_ms))
    ):
        return tuple.__new__(Accepted, (batch, header, -1))
    if origin is _CLIENT and _needs_records(batch, header, config, now_ms):
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
        damaged = crc32c.crc32c(memoryview(batch)[_CRC_FROM:]) != int.from_bytes(batch[_CRC_AT:_CRC_FROM], "big")
    elif len(batch) > _MAGIC_AT and batch[_MAGIC_AT] < MAGIC:
        return _invalid(f"magic {batch[_MAGIC_AT]}: Produce v3 and later carry batches of magic {MAGIC} only")
    else:
        # The frame arrived completely, so a batch that is too short was sent like that.
        claimed = int.from_bytes(batch[_LENGTH_AT:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
        damaged = len(batch) >= LOG_OVERHEAD and claimed <= len(batch)
    return Refusal(ErrorCode.CORRUPT_MESSAGE if damaged else ErrorCode.INVALID_RECORD, str(error))


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


def belongs_in_thread(batch: bytes | bytearray | memoryview, config: LogConfig) -> bool:
    """Whether `check_batch` may decompress or compress enough to hold up the event loop."""
    return (
        len(batch) > _INLINE_BYTES
        and not config.keeps_batches
        and (bool(batch[_CODEC_AT] & CODEC_MASK) or config.compression_type not in ("producer", "uncompressed", "none"))
    )


def _needs_records(batch: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    if config.compacted or (
        config.compression_type != "producer" and _target_codec(header, config) != header.compression
    ):
        return True
    return not config.stamps_append_time and not _header_proves_times(batch, header, config, now_ms)


def _header_proves_times(batch: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Whether all timestamps are in bounds without a look at whole records.

    The header holds the latest timestamp, not the earliest: a finite bound on the past needs the records. A sum of base
    timestamp and delta that wraps around is found in an uncompressed batch only: a compressed one is not decompressed
    for that, and its readers see a wrong timestamp.
    """
    if config.message_timestamp_before_max_ms < NEVER_MS:
        return False
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    if header.max_timestamp > latest_ms:
        return False
    return bool(header.attributes & CODEC_MASK) or times_fit(
        memoryview(batch)[HEADER_SIZE:], header, now_ms - NEVER_MS, min(latest_ms, LONG_MAX)
    )


def _check_records(
    batch: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> Accepted | Refusal:
    """Rows L7, L9, L15: keys for a compacted topic, KIP-937's bounds, and the topic's codec."""
    rules = RecordRules(config.compacted)
    if not config.stamps_append_time:
        rules = RecordRules(
            config.compacted,
            now_ms - config.message_timestamp_before_max_ms,
            now_ms + config.message_timestamp_after_max_ms,
        )
    try:
        unpacked = unpack_records(batch, 0, header, config.message_max_decompressed_bytes)
        found = check_records(unpacked, header, rules, _RECORD_ERRORS_MAX)
        if found.wrong:
            return _wrong_records(found, header, rules)
        stored, header = _stored(batch, header, unpacked, found, config)
    except OversizedBatch as error:
        return Refusal(ErrorCode.MESSAGE_TOO_LARGE, f"{error}, the broker's {DECOMPRESSED_LIMIT}; send smaller batches")
    except CorruptBatch as error:
        return _invalid(str(error))  # the checksum matches, so the client sent it like this
    if len(stored) > config.max_message_bytes:
        return _too_large(len(stored), config)
    return _fit(stored, header, config, now_ms)


def _wrong_records(found: CheckedRecords, header: BatchHeader, rules: RecordRules) -> Refusal:
    """One bad record rejects the whole batch."""
    bounds = f"is outside [{rules.earliest_ms}, {rules.latest_ms}]"
    errors = tuple(
        (index, "a compacted topic needs a key" if timestamp_ms is None else f"timestamp {timestamp_ms} {bounds}")
        for index, timestamp_ms in found.wrong
    )
    mistimed = any(timestamp_ms is not None for _, timestamp_ms in found.wrong)
    code = ErrorCode.INVALID_TIMESTAMP if mistimed else ErrorCode.INVALID_RECORD
    counts = f"{found.wrong_count} of {header.record_count} records were refused"
    return Refusal(code, f"{counts}, the first of them because {errors[0][1]}", errors)


def _stored(
    batch: bytearray | memoryview,
    header: BatchHeader,
    unpacked: bytes | bytearray,
    found: CheckedRecords,
    config: LogConfig,
) -> tuple[bytearray | memoryview, BatchHeader]:
    """The batch in the topic's codec (row L9, KIP-390), where its header and offsets agree with its records."""
    codec = _target_codec(header, config)
    same_times = config.stamps_append_time or found.max_timestamp == header.max_timestamp
    if found.consecutive and codec == header.compression:
        if same_times:
            return batch, header
        body = bytes(batch[HEADER_SIZE:])
    else:
        body = compress(
            codec, unpacked if found.consecutive else _renumbered(unpacked, header, config), _level(codec, config)
        )
    if not same_times:
        header = header._replace(max_timestamp=found.max_timestamp)
    header, stored = packed(header._replace(attributes=header.attributes & ~CODEC_MASK | codec), body)
    return stored, header


def _renumbered(unpacked: bytes | bytearray, header: BatchHeader, config: LogConfig) -> bytearray:
    """The same records with consecutive offsets."""
    body, base_ms, offset = bytearray(), header.base_timestamp, 0
    for piece in decode_in_pieces(unpacked, header):
        first, *others = piece
        following: list[Record | NewRecord] = [record[1:] for record in others]
        if config.stamps_append_time:  # the append time replaces these timestamps, which may be beyond all bounds
            first = first._replace(timestamp_ms=base_ms)
            following = [(base_ms, *record[2:]) for record in others]
        body += encode_records([first._replace(offset=offset), *following], base_ms)[0]
        offset += len(piece)
    return body


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


def _too_large(size_bytes: int, config: LogConfig) -> Refusal:
    return Refusal(
        ErrorCode.MESSAGE_TOO_LARGE, f"batch of {size_bytes} bytes, at most {config.max_message_bytes} are allowed"
    )
