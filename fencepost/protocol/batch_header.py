"""The 61 bytes in front of every record batch (format v2): reading, checking and patching them in place."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import crc32c

from fencepost.protocol.compression import Compression
from fencepost.protocol.sequence import last_of

HEADER_SIZE = 61
LOG_OVERHEAD = 12
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
_LAST_CODEC = int(Compression.ZSTD)

Buffer = bytes | bytearray | memoryview

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")

_LEAST_LENGTH = HEADER_SIZE - LOG_OVERHEAD
_LENGTH_AT = 8
_EPOCH_AT = 12
_CRC_AT = 17
_CRC_FROM = 21
_MAX_TIMESTAMP_AT = 35
_PRODUCER_AT = 43


class UnreadableBatch(ValueError):
    """The records of a batch cannot be read here; the text names the place and the reason."""


class CorruptBatch(UnreadableBatch):
    """The bytes are not a record batch of format v2."""


class OversizedBatch(UnreadableBatch):
    """The records of a batch decompress to more bytes than the reader allows. The batch is not damaged."""

    def __init__(self, base_offset: int, packed_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"the records of the batch at offset {base_offset} ({packed_bytes} bytes) "
            f"decompress to more than {limit_bytes} bytes"
        )


class InvalidBatch(CorruptBatch):
    """A batch is complete but its header contradicts itself, for example with a negative record count."""


class BatchHeader(NamedTuple):
    """A batch's header as on the wire; offsets count records, sizes count bytes, timestamps are epoch ms."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch: the field `batch_length` counts only the bytes after it."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record, also if compaction removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset at which a reader continues after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The codec of the bytes after the header."""
        return Compression(self.attributes & CODEC_MASK)

    @property
    def timestamp_type(self) -> int:
        """0: the producer set the timestamps (CreateTime); 1: `max_timestamp` holds for all (LogAppendTime)."""
        return 1 if self.attributes & LOG_APPEND_TIME_BIT else 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction, whose marker commits or aborts it."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch has a control record, not data; applications never receive it."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time from which compaction may drop this batch's tombstones (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapped at 2**31 - 1; -1 if the batch has no sequence."""
        return last_of(self.base_sequence, self.last_offset_delta + 1)


def read_header(buffer: Buffer, start: int = 0, *, whole: bool = True) -> BatchHeader:
    """The header of the batch that begins at `start`.

    With `whole=False` the batch may extend beyond the buffer, for loops that read headers only.
    Raises CorruptBatch if the buffer is too short, the magic is not 2 or the length is below a header's; InvalidBatch
    if counts are negative, the record count exceeds the offsets, or the codec is unknown. The CRC is not checked.
    """
    room = len(buffer) - start
    if room < HEADER_SIZE:
        raise CorruptBatch(f"batch at byte {start}: {max(room, 0)} bytes left, a header needs {HEADER_SIZE}")
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, start))
    _, length, _, magic, _, attributes, last_offset_delta, _, _, _, _, _, record_count = header
    if magic != MAGIC:
        raise CorruptBatch(f"batch at byte {start}: magic is {magic}, only {MAGIC} is supported")
    if length < _LEAST_LENGTH:
        raise CorruptBatch(f"batch at byte {start}: length {length} cannot hold a header")
    if whole and length + LOG_OVERHEAD > room:
        raise CorruptBatch(f"batch at byte {start}: {header.size_bytes} bytes long, but only {room} are left")
    if not 0 <= record_count <= last_offset_delta + 1 or last_offset_delta < 0:
        raise InvalidBatch(f"batch at byte {start}: {record_count} records, but last offset delta {last_offset_delta}")
    if attributes & CODEC_MASK > _LAST_CODEC:
        raise InvalidBatch(f"batch at byte {start}: compression {attributes & CODEC_MASK} is not known")
    return header


def check_crc(buffer: Buffer, start: int, header: BatchHeader) -> bool:
    """Whether the CRC-32C from the attributes to the end of the batch is the one in the header; copies nothing."""
    with memoryview(buffer) as view:
        return crc_fits(view, start, header)


def crc_fits(view: memoryview, start: int, header: BatchHeader) -> bool:
    """`check_crc` for loops over many small batches that already have a view of the buffer."""
    found: int = crc32c.crc32c(view[start + _CRC_FROM : start + header.batch_length + LOG_OVERHEAD])
    return found == header.crc


def iter_headers(buffer: Buffer, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Every whole batch between `start` and `stop` as (position, header).

    Ends before an incomplete last batch: a fetch may truncate one. Raises CorruptBatch if bytes are not a batch.
    """
    end = len(buffer) if stop is None else min(stop, len(buffer))
    unpack, new = _HEADER.unpack_from, tuple.__new__
    while end - start >= HEADER_SIZE:
        header = new(BatchHeader, unpack(buffer, start))
        _, length, _, magic, _, attributes, last_delta, _, _, _, _, _, count = header
        sound = magic == MAGIC and length >= _LEAST_LENGTH and attributes & CODEC_MASK <= _LAST_CODEC
        if not sound or not 0 <= count <= last_delta + 1 or last_delta < 0:
            header = read_header(buffer, start, whole=False)  # raises with the reason
        size = length + LOG_OVERHEAD
        if size > end - start:
            return
        yield start, header
        start += size


def assign_offset(buffer: bytearray | memoryview, start: int, base_offset: int, leader_epoch: int) -> None:
    """Set a batch's base offset and leader epoch. The CRC does not cover these two fields, so nothing else changes."""
    _OFFSET.pack_into(buffer, start, base_offset)
    _EPOCH.pack_into(buffer, start + _EPOCH_AT, leader_epoch)


def set_log_append_time(buffer: bytearray | memoryview, start: int, timestamp_ms: int) -> None:
    """Set the broker's time in a batch (KIP-32): type LogAppendTime, one timestamp for all records, new CRC."""
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, start + _CRC_FROM)
    _ATTRIBUTES.pack_into(buffer, start + _CRC_FROM, attributes | LOG_APPEND_TIME_BIT)
    _OFFSET.pack_into(buffer, start + _MAX_TIMESTAMP_AT, timestamp_ms)
    rewrite_crc(buffer, start)


def set_producer(
    buffer: bytearray | memoryview,
    start: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    transactional: bool = False,
) -> None:
    """Set a batch's producer id, epoch and first sequence, as after an epoch bump, and a new CRC.

    `transactional` makes the batch part of the producer's transaction; without it that attribute is unchanged.
    """
    if transactional:
        (attributes,) = _ATTRIBUTES.unpack_from(buffer, start + _CRC_FROM)
        _ATTRIBUTES.pack_into(buffer, start + _CRC_FROM, attributes | TRANSACTIONAL_BIT)
    _PRODUCER.pack_into(buffer, start + _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    rewrite_crc(buffer, start)


def rewrite_crc(buffer: bytearray | memoryview, start: int) -> None:
    """Compute the CRC-32C of the batch at `start` again and write it into its header."""
    (length,) = _EPOCH.unpack_from(buffer, start + _LENGTH_AT)
    with memoryview(buffer) as view, view[start + _CRC_FROM : start + length + LOG_OVERHEAD] as covered:
        _CRC.pack_into(buffer, start + _CRC_AT, crc32c.crc32c(covered))


def pack_header(buffer: bytearray | memoryview, start: int, header: BatchHeader) -> None:
    """Write a header whose CRC field is ignored, then compute the CRC; the records must already be in place."""
    _HEADER.pack_into(buffer, start, *header)
    rewrite_crc(buffer, start)
