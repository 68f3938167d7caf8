"""Record columns by numpy alone: every step is taken for all records at once, but for finding where they begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.protocol.batch_header import Buffer, CorruptBatch
from fencepost.protocol.column_types import BatchGroup, RecordColumns, arrow_numbers, headers_type
from fencepost.protocol.records import MIN_RECORD_BYTES, decode_headers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_SHORT_RUN = 16


class Places(NamedTuple):
    """Where the parts of records lie in their buffer, one entry per record; sizes are -1 for null."""

    time: Ints
    delta: Ints
    key_at: Ints
    key_size: Ints
    value_at: Ints
    value_size: Ints
    count_at: Ints
    header_count: Ints
    end: Ints


def _places(group: BatchGroup) -> Places:
    """Find every part of every record of `group`; headers are not entered, and times of more than 64 bits wrap around.

    Raises CorruptBatch where something does not fit.
    """
    import numpy as np

    starts = _starts(group)
    raw = np.frombuffer(group.data, np.uint8)
    size, at = _varints(raw, np.concatenate(starts))
    _all(size >= 0, "record size is negative", group)
    end = at + size
    time, at = _varints(raw, at + 1, 64)
    delta, at = _varints(raw, at)
    span = _per_record(group, [header.last_offset_delta for header in group.batches])
    _all((delta >= 0) & (delta <= span), "offset delta does not fit the batch", group)
    key_size, key_at = _varints(raw, at)
    value_size, value_at = _varints(raw, key_at + np.maximum(key_size, 0))
    count_at = value_at + np.maximum(value_size, 0)
    header_count, headers_at = _varints(raw, count_at)
    _all((key_size >= -1) & (value_size >= -1), "key or value size is negative", group)
    _all((header_count >= 0) & (header_count <= (end - headers_at) >> 1), "headers do not fit the record", group)
    _all((header_count > 0) | (headers_at == end), "sizes within the record do not add up", group)
    return Places(time, delta, key_at, key_size, value_at, value_size, count_at, header_count, end)


def _per_record(group: BatchGroup, numbers: list[int]) -> Ints:
    import numpy as np

    counts = [header.record_count for header in group.batches]
    return np.repeat(np.array(numbers, np.int64), counts)


def columns_by_numpy(
    group: BatchGroup, first_offset: int, stop_offset: int, fields: frozenset[str]
) -> RecordColumns | None:
    """The records of `group` from first_offset to before stop_offset, or None. Raises CorruptBatch."""
    import numpy as np

    at = _places(group)
    offset = _per_record(group, [header.base_offset for header in group.batches]) + at.delta
    kind = _per_record(group, [header.timestamp_type for header in group.batches])
    stamp = _per_record(group, [h.max_timestamp if h.timestamp_type else h.base_timestamp for h in group.batches])
    stamp += np.where(kind == 0, at.time, 0)
    keep: Any = (offset >= first_offset) & (offset < stop_offset)
    if keep.all():
        keep = slice(None)
    elif not keep.any():
        return None
    return RecordColumns(
        offset=offset[keep],
        timestamp_ms=stamp[keep],
        timestamp_type=kind[keep].astype(np.int32),
        key=_binary(group.data, at.key_at[keep], at.key_size[keep]) if "key" in fields else None,
        value=_binary(group.data, at.value_at[keep], at.value_size[keep]) if "value" in fields else None,
        headers=_headers(group, at.count_at[keep], at.end[keep], at.header_count[keep])
        if "headers" in fields
        else None,
    )


def _all(condition: NDArray[np.bool_], what: str, group: BatchGroup) -> None:
    if condition.all():
        return
    index = int(condition.argmin())
    for header in group.batches:
        if index < header.record_count:
            raise CorruptBatch(f"record {index}, batch at offset {header.base_offset}: {what}")
        index -= header.record_count
    raise AssertionError("more records than the batches hold")


def _varints(raw: NDArray[np.uint8], at: Ints, bits: int = 32) -> tuple[Ints, Ints]:
    """Zigzag varints at the positions `at`: their values, and the positions after them.

    Reading past the buffer's end gives its last byte again; the caller sees it, since the position is past the record.
    """
    import numpy as np

    byte = raw.take(at, mode="clip")
    after = at + 1
    value = (byte & 127).astype(np.uint64)
    open_ends = np.flatnonzero(byte > 127)
    shift = 7
    while len(open_ends):
        if shift >= bits + 3:
            raise CorruptBatch(f"varint at byte {int(at[open_ends[0]])} of the records is longer than its type")
        byte = raw.take(after[open_ends], mode="clip")
        after[open_ends] += 1
        value[open_ends] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        open_ends = open_ends[byte > 127]
        shift += 7
    signs = (value & np.uint64(1)).astype(np.int64)
    return (value >> np.uint64(1)).astype(np.int64) ^ -signs, after


def _binary(data: Buffer, at: Ints, size: Ints) -> Any:
    """A binary array over `data`: every second slot of an array that spans values and the gaps between them."""
    import numpy as np
    import pyarrow as pa

    count = len(at)
    null = size < 0
    if null.all():
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = at
    bounds[1::2] = at + np.maximum(size, 0)
    spans = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    slots = np.arange(0, 2 * count - 1, 2, dtype=np.int32)
    return spans.take(arrow_numbers(slots, pa.int32(), ~null))


def _starts(group: BatchGroup) -> list[Ints]:
    """Where each of their records begins, batch after batch."""
    found: list[Ints] = []
    for header, (at, end) in zip(group.batches, group.bounds, strict=True):
        if header.record_count * MIN_RECORD_BYTES > end - at:
            raise CorruptBatch(
                f"batch at offset {header.base_offset}: {header.record_count} records can not fit {end - at} bytes"
            )
        try:
            last = _find_starts(group.data, at, end, header.record_count, found)
        except IndexError:
            last = -1
        if last != end:
            raise CorruptBatch(f"batch at offset {header.base_offset}: record sizes do not add up to the batch's end")
    return found


def _find_starts(data: Buffer, at: int, end: int, count: int, out: list[Ints]) -> int:
    """Where each record begins; returns the end of the last one. IndexError where the buffer ends before.

    Records of one size are found in one stroke: while the bytes that hold the size stay the same from one stride to the
    next, the next record must begin there. Others are walked one by one.
    """
    import numpy as np

    raw = np.frombuffer(data, np.uint8)
    while True:
        after, size = _size_at(data, at) if count else (at, 0)
        step = max(after - at + size, 1)
        room = min(count, (end - at) // step)
        run = _run_length(raw, at, after - at, step, room) if room >= _SHORT_RUN else 0
        if run < _SHORT_RUN:
            starts: list[int] = []
            at = _walk(data, at, count, starts.append)
            out.append(np.array(starts, np.int64))
            return at
        out.append(np.arange(at, at + run * step, step, dtype=np.int64))
        at += run * step
        count -= run


def _run_length(raw: NDArray[np.uint8], at: int, width: int, step: int, room: int) -> int:
    """How many of `room` records, `step` bytes apart, begin with the same `width` bytes as the one at `at`."""
    same = raw[at : at + room * step : step] == raw[at]
    for byte in range(at + 1, at + width):
        same &= raw[byte : byte + (room - 1) * step + 1 : step] == raw[byte]
    return room if same.all() else int(same.argmin())


def _size_at(data: Buffer, at: int) -> tuple[int, int]:
    """The size in front of a record: the position after it, and the bytes that follow."""
    byte = data[at]
    at += 1
    size, shift = byte & 127, 7
    while byte > 127:
        if shift > 28:
            raise CorruptBatch(f"record size before byte {at} is longer than its type")
        byte = data[at]
        at += 1
        size |= (byte & 127) << shift
        shift += 7
    return at, size >> 1


def _walk(data: Buffer, at: int, count: int, append: Callable[[int], None]) -> int:
    """Step from record to record by the sizes; sizes of up to two bytes without a call."""
    for _ in range(count):
        append(at)
        low = data[at]
        if low < 128:
            at += 1 + (low >> 1)
        elif (high := data[at + 1]) < 128:
            at += 2 + ((low & 127 | high << 7) >> 1)
        else:
            at, size = _size_at(data, at)
            at += size
    return at


def _headers(group: BatchGroup, at: Ints, end: Ints, count: Ints) -> Any:
    """The headers column; `at` is where each record's header count stands. Headers are few, so tuples will do."""
    import numpy as np
    import pyarrow as pa

    if not count.any():
        return pa.nulls(len(at), headers_type())
    data = bytes(group.data)
    keys: list[str] = []
    values: list[bytes | None] = []
    for index in np.flatnonzero(count).tolist():
        try:
            pairs, reached = decode_headers(data, int(at[index]), int(end[index]))
        except IndexError:
            raise CorruptBatch(f"headers at byte {int(at[index])} of the records end with the buffer") from None
        if reached != end[index]:
            raise CorruptBatch(f"headers before byte {reached} of the records do not end with their record")
        keys += [name for name, _ in pairs]
        values += [content for _, content in pairs]
    bounds = np.zeros(len(at) + 1, np.int32)
    np.cumsum(count, out=bounds[1:])
    columns = [pa.array(keys, pa.string()), pa.array(values, pa.binary())]
    pairs_array = pa.StructArray.from_arrays(columns, ["key", "value"])
    none = pa.array(count == 0)
    return pa.ListArray.from_arrays(pa.array(bounds), pairs_array, type=headers_type(), mask=none)
