"""Records inside a batch: tuples to bytes and back, in plain Python, with every length checked."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fencepost.protocol import compiled
from fencepost.protocol.batch_header import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    CorruptBatch,
    OversizedBatch,
)
from fencepost.protocol.compression import (
    LARGEST_BYTES,
    Compression,
    DecompressionFailed,
    DecompressionLimit,
    decompress,
)
from fencepost.protocol.varints import LONG_MAX, LONG_MIN, put_signed_varint, wrapped

Headers = tuple[tuple[str, bytes | None], ...]
NewRecord = tuple[int, bytes | None, bytes | None, Iterable[tuple[str, bytes | None]]]
"""(timestamp in epoch ms, key, value, headers): a record that has no offset yet."""

MIN_RECORD_BYTES = 7
PIECE_RECORDS = 5000
"""A batch with more records is decoded in pieces: a small compressed one can hold millions of them."""


class Record(NamedTuple):
    """One record as a reader gets it; `timestamp_ms` is epoch milliseconds, -1 if the producer set none."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def unpack_records(
    buffer: Buffer, start: int, header: BatchHeader, max_bytes: int = LARGEST_BYTES
) -> bytes | bytearray:
    """The bytes of the records of the batch at `start`, decompressed; a copy for uncompressed batches, too.

    `max_bytes` limits the decompressed size: readers of another process's batches must name one. Raises CorruptBatch,
    and OversizedBatch above the limit.
    """
    with memoryview(buffer) as view, view[start + HEADER_SIZE : start + header.size_bytes] as body:
        if header.size_bytes > len(view) - start:
            raise CorruptBatch(f"batch at byte {start}: {header.size_bytes} bytes long, but the buffer ends before")
        if header.compression is Compression.NONE or header.record_count == 0:
            return bytes(body)
        try:
            return decompress(header.compression, body, max_bytes)
        except DecompressionLimit:
            raise OversizedBatch(header.base_offset, header.size_bytes, max_bytes) from None
        except DecompressionFailed as error:
            raise CorruptBatch(f"batch at byte {start}, offset {header.base_offset}: {error}") from error


def decode_records(buffer: Buffer, start: int, header: BatchHeader, max_bytes: int = LARGEST_BYTES) -> list[Record]:
    """All records of the batch at `start`, with absolute offsets; with LogAppendTime all carry the batch's timestamp.

    Raises CorruptBatch, naming record and byte, if lengths, counts or offsets do not fit the batch, and OversizedBatch
    if the decompressed size exceeds `max_bytes`. The caller checks the CRC.
    """
    if compiled.hot is not None and header.compression is Compression.NONE:
        end = start + header.size_bytes
        with memoryview(buffer) as view, view[start + HEADER_SIZE : end] as body:
            if end <= len(view) and (found := _decode_compiled(body, header)) is not None:
                return found
    return decode_unpacked(unpack_records(buffer, start, header, max_bytes), header)


def decode_run(
    buffer: Buffer, batches: Iterable[tuple[int, BatchHeader]], position: int, wanted: int
) -> tuple[list[Record], int]:
    """Records of `batches` (position in `buffer`, header) until there are `wanted`, and the number of batches decoded.

    The fixed cost of a decode is paid once for all. It ends before a batch that `decode_records` must read alone: a
    compressed one, one that begins before `position` or before the end of the previous one, one of another leader
    epoch, and a damaged one.
    """
    found: list[Record] = []
    hot, kind, taken, first_epoch = compiled.hot, Record, 0, -1
    with memoryview(buffer) as view:
        room = len(view)
        for start, header in batches:
            base, length, epoch, _, _, attributes, last_delta, base_time, max_time, _, _, _, count = header
            end = start + length + LOG_OVERHEAD
            if attributes & CODEC_MASK or base < position or end > room or (taken and epoch != first_epoch):
                break
            if hot is not None:
                stamp = max_time if attributes & LOG_APPEND_TIME_BIT else None
                body = view[start + HEADER_SIZE : end]
                records = hot.decode(body, count, base, last_delta, base_time, stamp, kind, ())
                if records is None:
                    break
            else:
                try:
                    records = decode_unpacked(bytes(view[start + HEADER_SIZE : end]), header)
                except CorruptBatch:
                    break
            found += records
            taken += 1
            if len(found) >= wanted:
                break
            position, first_epoch = base + last_delta + 1, epoch
    return found, taken


def _decode_compiled(data: Buffer, header: BatchHeader) -> list[Record] | None:
    """The records by the compiled path; None if it finds something unusual, which the Python path has to decide."""
    assert compiled.hot is not None
    base, last_delta, base_time = header.base_offset, header.last_offset_delta, header.base_timestamp
    stamp = header.max_timestamp if header.timestamp_type else None
    found: list[Record] | None = compiled.hot.decode(
        data, header.record_count, base, last_delta, base_time, stamp, Record, ()
    )
    return found


def decode_unpacked(unpacked: Buffer, header: BatchHeader) -> list[Record]:
    """`decode_records` of a batch whose bytes `unpack_records` has returned already, maybe in another thread."""
    if compiled.hot is not None and (found := _decode_compiled(unpacked, header)) is not None:
        return found
    data = bytes(unpacked)
    _check_room(header, len(data))
    out: list[Record] = []
    try:
        end = _decode_all(data, header, out)
    except IndexError:
        raise _corrupt(header, len(out), "the bytes end within it") from None
    except CorruptBatch as error:
        raise _corrupt(header, len(out), str(error)) from None
    if end != len(data):
        raise CorruptBatch(f"batch at offset {header.base_offset}: {len(data) - end} bytes after its last record")
    if header.timestamp_type:
        return [record._replace(timestamp_ms=header.max_timestamp) for record in out]
    return out


def decode_in_pieces(
    unpacked: Buffer, header: BatchHeader, piece_records: int = PIECE_RECORDS
) -> Iterator[list[Record]]:
    """`decode_unpacked` in pieces of `piece_records`.

    Raises CorruptBatch, maybe after the pieces before the damage.
    """
    with memoryview(unpacked) as view:
        for part, at, end in in_pieces(view, header, piece_records):
            yield decode_unpacked(view[at:end], part)


def in_pieces(view: memoryview, header: BatchHeader, piece_records: int) -> Iterator[tuple[BatchHeader, int, int]]:
    """The pieces of a batch's decompressed bytes: (header with the piece's record count, start, end).

    Raises CorruptBatch only if the bytes cannot hold the records: the decoder of a piece finds other damage.
    """
    _check_room(header, len(view))
    at, left = 0, header.record_count
    while left > piece_records:
        end = _end_of(view, at, piece_records)
        yield header._replace(record_count=piece_records), at, end
        at, left = end, left - piece_records
    yield header._replace(record_count=left), at, len(view)


def _end_of(view: memoryview, at: int, count: int) -> int:
    """Where `count` records from `at` on end; the end of the bytes if a length does not fit: the decoder says why."""
    try:
        for _ in range(count):
            size = view[at]
            at += 1
            shift = 7
            while size >> shift:
                size = size - (1 << shift) + (view[at] << shift)
                at += 1
                shift += 7
            at += size >> 1
    except IndexError:
        return len(view)
    return min(at, len(view))


def _check_room(header: BatchHeader, size_bytes: int) -> None:
    if header.record_count * MIN_RECORD_BYTES > size_bytes:
        raise CorruptBatch(
            f"batch at offset {header.base_offset}: {header.record_count} records cannot fit {size_bytes} bytes"
        )


def _corrupt(header: BatchHeader, index: int, what: str) -> CorruptBatch:
    return CorruptBatch(f"record {index} of {header.record_count}, batch at offset {header.base_offset}: {what}")


def _decode_all(data: bytes, header: BatchHeader, out: list[Record]) -> int:
    # The code for varints of up to two bytes is repeated five times: a call for each would double the time.
    base, last_delta, base_time = header.base_offset, header.last_offset_delta, header.base_timestamp
    append, new, at = out.append, tuple.__new__, 0
    last_delta = min(last_delta, LONG_MAX - base)  # no offset has more than 64 bits
    for _ in range(header.record_count):
        size = data[at]
        at += 1
        if size > 127:
            size, at = (size + (b << 7) - 128, at + 1) if (b := data[at]) < 128 else _more(data, at, size, 28)
        end = at + (size >> 1)
        time = data[at + 1]
        at += 2
        if time > 127:
            time, at = (time + (b << 7) - 128, at + 1) if (b := data[at]) < 128 else _more(data, at, time, 63)
        delta = data[at]
        at += 1
        if delta > 127:
            delta, at = (delta + (b << 7) - 128, at + 1) if (b := data[at]) < 128 else _more(data, at, delta, 28)
        signs = size | delta
        length = data[at]
        at += 1
        if length > 127:
            length, at = (length + (b << 7) - 128, at + 1) if (b := data[at]) < 128 else _more(data, at, length, 28)
        if length & 1:
            key = None
            signs |= length > 1
        else:
            key = data[at : (at := at + (length >> 1))]
        length = data[at]
        at += 1
        if length > 127:
            length, at = (length + (b << 7) - 128, at + 1) if (b := data[at]) < 128 else _more(data, at, length, 28)
        if length & 1:
            value = None
            signs |= length > 1
        else:
            value = data[at : (at := at + (length >> 1))]
        headers: Headers = ()
        if data[at]:
            headers, at = decode_headers(data, at, end)
        else:
            at += 1
        if at != end or signs & 1 or delta >> 1 > last_delta:
            raise CorruptBatch(f"lengths or offset delta do not fit (at byte {at}, the record's end is {end})")
        time = base_time + ((time >> 1) ^ -(time & 1))
        if not LONG_MIN <= time <= LONG_MAX:
            time = wrapped(time)
        append(new(Record, (base + (delta >> 1), time, key, value, headers)))
    return at


def _more(data: bytes, at: int, first: int, max_shift: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte was `first`; IndexError at the end, CorruptBatch if too long."""
    byte = data[at]
    at += 1
    value = first & 127 | (byte & 127) << 7
    shift = 14
    while byte > 127:
        if shift > max_shift:
            raise CorruptBatch(f"varint before byte {at} of the records is longer than its type")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
    return value, at


def _zigzag_at(data: bytes, at: int) -> tuple[int, int]:
    value, at = data[at], at + 1
    if value > 127:
        value, at = _more(data, at, value, 28)
    return (value >> 1) ^ -(value & 1), at


def decode_headers(data: bytes, at: int, end: int) -> tuple[Headers, int]:
    """The headers whose count is at `at` in a record that ends at `end`, and the position after them.

    Raises CorruptBatch if they do not fit the record, IndexError if `data` ends before.
    """
    count, at = _zigzag_at(data, at)
    if not 0 <= count <= (end - at) >> 1:
        raise CorruptBatch(f"{count} headers cannot fit the {end - at} bytes from byte {at}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, at = _zigzag_at(data, at)
        if not 0 <= length <= end - at:
            raise CorruptBatch(f"header key of {length} bytes at byte {at}")
        # Java reads invalid UTF-8 with replacement characters, and a record must be readable here if it is there.
        key = data[at : at + length].decode("utf-8", "replace")
        length, at = _zigzag_at(data, at + length)
        if not -1 <= length <= end - at:
            raise CorruptBatch(f"header value of {length} bytes at byte {at}")
        if length < 0:
            headers.append((key, None))
        else:
            headers.append((key, data[at : at + length]))
            at += length
    return tuple(headers), at


_SMALL = 8192
_VARINTS = (
    *(bytes((number << 1,)) for number in range(64)),
    *(bytes((number << 1 & 127 | 128, number >> 6)) for number in range(64, _SMALL)),
)
"""The zigzag varints of one and two bytes; `put_signed_varint` would take most of this module's import time."""
_NULL = b"\x01"
_EMPTY = b"\x00"


def _sized(data: bytes | None) -> bytes:
    if data is None:
        return _NULL
    length = len(data)
    return (_VARINTS[length] if length < _SMALL else put_signed_varint(length)) + data


def encode_records(
    records: Sequence[Record | NewRecord], base_timestamp: int, base_offset: int = 0, reserved: int = 0
) -> tuple[bytearray, int, int]:
    """Encode records as in an uncompressed batch: (bytes, last offset delta, largest timestamp).

    The bytes follow `reserved` zero bytes for a header. A `Record` keeps its own offset, relative to `base_offset`; a
    NewRecord gets the next offset after the one before it.
    Raises ValueError if offsets do not rise from `base_offset` on.
    """
    if compiled.hot is not None:
        found: tuple[bytearray, int, int] | None = compiled.hot.encode(
            records, base_timestamp, base_offset, Record, reserved
        )
        if found is not None:
            return found
    body, last_delta, max_timestamp = _encode_all(records, base_timestamp, base_offset)
    whole = bytearray(reserved)
    whole += body
    return whole, last_delta, max_timestamp


def _encode_all(records: Sequence[Record | NewRecord], base_timestamp: int, base_offset: int) -> tuple[bytes, int, int]:
    out: list[bytes] = []
    append, varints, small = out.append, _VARINTS, _SMALL
    headers: Iterable[tuple[str, bytes | None]]
    delta, max_timestamp = -1, -1
    for record in records:
        if isinstance(record, Record):
            if record.offset - base_offset <= delta:
                raise ValueError(f"offset {record.offset} does not rise above {base_offset + delta}")
            delta = record.offset - base_offset
            timestamp, key, value, headers = record[1:]
        else:
            timestamp, key, value, headers = record
            delta += 1
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        shift = timestamp - base_timestamp
        body = b"\0%b%b%b%b%b" % (
            varints[shift] if 0 <= shift < small else put_signed_varint(shift),
            varints[delta] if delta < small else put_signed_varint(delta),
            _NULL if key is None else _sized(key),
            _NULL if value is None else _sized(value),
            _encode_headers(headers) if headers else _EMPTY,
        )
        size = len(body)
        append(varints[size] if size < small else put_signed_varint(size))
        append(body)
    return b"".join(out), delta, max_timestamp


def _encode_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    pairs = list(headers)
    parts = [put_signed_varint(len(pairs))]
    for key, value in pairs:
        parts += (_sized(key.encode()), _sized(value))
    return b"".join(parts)
