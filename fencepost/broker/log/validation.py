"""What a batch must be before it may enter a log, and what the broker changes in it (rows P2, L7, L8, L9, L15).

The header decides nearly everything. Records are looked into only where a rule asks for it: keys on a compacted topic,
timestamps that the header can not vouch for, another `compression.type`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import crc32c

from fencepost.broker.log.config import NEVER_MS, LogConfig
from fencepost.broker.log.producer_state import AppendOrigin, Refusal
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
    InvalidBatch,
    build_batch,
    read_header,
    set_log_append_time,
)
from fencepost.protocol.records import Record, decode_records

_CODEC_BY_NAME = {
    "uncompressed": Compression.NONE,
    "none": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_CRC_AT = 17
_CRC_FROM = 21
_RECORD_ERRORS_MAX = 1000
_NOT_FOR_CLIENTS = CONTROL_BIT | DELETE_HORIZON_BIT


class Accepted(NamedTuple):
    """A batch fit for the log: its bytes, which may be written to, its header, and the broker's stamp (-1: none)."""

    batch: bytearray | memoryview
    header: BatchHeader
    log_append_time_ms: int


def check_batch(
    batch: bytes | bytearray | memoryview, config: LogConfig, origin: AppendOrigin, now_ms: int
) -> Accepted | Refusal:
    """Check one whole batch and bring it into the form in which it is stored; offsets are assigned later.

    `batch` itself is changed where it may be written to.
    """
    try:
        header = read_header(batch)
    except InvalidBatch as error:
        code = ErrorCode.INVALID_RECORD if _crc_matches(batch, _crc_in(batch)) else ErrorCode.CORRUPT_MESSAGE
        return Refusal(code, str(error))
    except CorruptBatch as error:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, str(error))
    size_bytes = header.batch_length + 12
    if size_bytes != len(batch):
        return Refusal(ErrorCode.INVALID_RECORD, f"{len(batch) - size_bytes} bytes follow the batch")
    if size_bytes > config.max_message_bytes:
        return _too_large(size_bytes, config)
    if size_bytes > config.segment_bytes:
        return Refusal(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"batch of {size_bytes} bytes, a segment holds {config.segment_bytes}"
        )
    if not _crc_matches(batch, header.crc):
        return Refusal(ErrorCode.CORRUPT_MESSAGE, "the batch's CRC-32C does not match its bytes")
    if origin is AppendOrigin.CLIENT:
        refusal = _check_client_header(header)
        if refusal is not None:
            return refusal
    if isinstance(batch, bytes) or (isinstance(batch, memoryview) and batch.readonly):
        batch = bytearray(batch)
    if _needs_records(header, config, origin, now_ms):
        return _check_records(batch, header, config, now_ms)
    return _stamp(batch, header, config, now_ms)


def _crc_matches(batch: bytes | bytearray | memoryview, crc: int) -> bool:
    return bool(crc32c.crc32c(memoryview(batch)[_CRC_FROM:]) == crc)


def _crc_in(batch: bytes | bytearray | memoryview) -> int:
    return int.from_bytes(batch[_CRC_AT:_CRC_FROM], "big")


def _check_client_header(header: BatchHeader) -> Refusal | None:
    """Row L8: what a producer may put into a header."""
    attributes = header.attributes
    if header.base_offset != 0:
        return _invalid(f"base offset is {header.base_offset}, producers send 0")
    if header.record_count != header.last_offset_delta + 1 or header.record_count <= 0:
        return _invalid(f"{header.record_count} records, but last offset delta {header.last_offset_delta}")
    if attributes & _NOT_FOR_CLIENTS:
        kind = "control batches" if attributes & CONTROL_BIT else "delete horizons"
        return _invalid(f"clients may not write {kind}")
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            return _invalid(
                f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}"
            )
    elif attributes & TRANSACTIONAL_BIT:
        return _invalid("a transactional batch without a producer id")
    return None


def _needs_records(header: BatchHeader, config: LogConfig, origin: AppendOrigin, now_ms: int) -> bool:
    if origin is not AppendOrigin.CLIENT:
        return False
    if config.compacted or (
        config.compression_type != "producer" and _target_codec(header, config) != header.compression
    ):
        return True
    if config.stamps_append_time:
        return False
    if header.attributes & LOG_APPEND_TIME_BIT:
        return True
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        return True
    # The header vouches for the latest timestamp, not for the earliest: a finite bound on the past asks the records.
    return config.message_timestamp_before_max_ms < NEVER_MS


def _check_records(
    batch: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> Accepted | Refusal:
    try:
        records = decode_records(batch, 0, header)
    except CorruptBatch as error:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, str(error))
    if config.compacted:
        keyless = [index for index, record in enumerate(records) if record.key is None]
        if keyless:
            why = "a compacted topic needs a key"
            return Refusal(ErrorCode.INVALID_RECORD, "one or more records have no key", _record_errors(keyless, why))
    if not config.stamps_append_time:
        refusal = _check_timestamps(header, records, config, now_ms)
        if refusal is not None:
            return refusal
    codec = _target_codec(header, config)
    if codec != header.compression:
        batch = build_batch(
            records,
            compression=codec,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            leader_epoch=header.partition_leader_epoch,
        )
        header = read_header(batch)
        if len(batch) > config.max_message_bytes:
            return _too_large(len(batch), config)
    return _stamp(batch, header, config, now_ms)


def _check_timestamps(header: BatchHeader, records: Sequence[Record], config: LogConfig, now_ms: int) -> Refusal | None:
    """Row L7: KIP-32's type and KIP-937's bounds, record by record (L15)."""
    if header.attributes & LOG_APPEND_TIME_BIT:
        everyone = range(len(records))
        why = "producers may not set the timestamp type to LogAppendTime"
        return Refusal(ErrorCode.INVALID_TIMESTAMP, why, _record_errors(everyone, why))
    earliest_ms = now_ms - config.message_timestamp_before_max_ms
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    bad = [i for i, r in enumerate(records) if r.timestamp_ms != -1 and not earliest_ms <= r.timestamp_ms <= latest_ms]
    if not bad:
        return None
    why = f"timestamp outside [{earliest_ms}, {latest_ms}]"
    return Refusal(
        ErrorCode.INVALID_TIMESTAMP, "one or more records have a timestamp out of range", _record_errors(bad, why)
    )


def _stamp(batch: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> Accepted:
    if not config.stamps_append_time or header.is_control:
        return Accepted(batch, header, -1)
    set_log_append_time(batch, 0, now_ms)
    return Accepted(batch, read_header(batch), now_ms)


def _target_codec(header: BatchHeader, config: LogConfig) -> Compression:
    if config.compression_type == "producer":
        return header.compression
    return _CODEC_BY_NAME[config.compression_type]


def _record_errors(indexes: Sequence[int], why: str) -> tuple[tuple[int, str], ...]:
    return tuple((index, why) for index in indexes[:_RECORD_ERRORS_MAX])


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_RECORD, why)


def _too_large(size_bytes: int, config: LogConfig) -> Refusal:
    return Refusal(
        ErrorCode.MESSAGE_TOO_LARGE, f"batch of {size_bytes} bytes, at most {config.max_message_bytes} are allowed"
    )
