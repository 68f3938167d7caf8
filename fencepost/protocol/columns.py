"""Records of whole batches as numpy and Arrow columns, without a Python object per record; needs numpy and pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fencepost.protocol import compiled
from fencepost.protocol.batch_header import HEADER_SIZE, BatchHeader, Buffer, CorruptBatch
from fencepost.protocol.column_types import ALL_FIELDS, Column, Lists, RecordColumns, headers_type
from fencepost.protocol.compression import LARGEST_BYTES, Compression
from fencepost.protocol.records import Record, decode_unpacked, in_pieces, unpack_records

GROUP_BYTES = 32 << 20
"""Decompressed bytes after which columns are yielded, so that a fetch of decompression bombs needs little memory."""
GROUP_RECORDS = 250_000
"""A compressed batch with more records becomes columns in pieces."""
MAX_OFFSET = 2**63 - 1


@dataclass(slots=True)
class _Group:
    """Batches in one buffer: the header of each, and the start and end of its records."""

    data: Buffer
    batches: list[tuple[BatchHeader, int, int]] = field(default_factory=list)


def iter_columns(
    buffer: Buffer,
    batches: Iterable[tuple[int, BatchHeader]],
    *,
    first_offset: int = 0,
    stop_offset: int = MAX_OFFSET,
    fields: frozenset[str] = ALL_FIELDS,
    max_bytes: int = LARGEST_BYTES,
) -> Iterator[RecordColumns]:
    """The records of `batches` (position in `buffer`, header; whole, in order) from first_offset to before stop_offset.

    Consecutive uncompressed batches become one `RecordColumns` over `buffer`; compressed ones are decompressed first
    and come in groups of about GROUP_BYTES. Nothing is yielded if no record is left. `fields` names the columns to
    build besides offset and time. Raises CorruptBatch and OversizedBatch as `decode_records` does.
    """
    raw: list[tuple[int, BatchHeader]] = []
    packed: list[tuple[BatchHeader, bytes | bytearray]] = []
    packed_bytes = 0
    for start, header in batches:
        if header.record_count == 0 and header.size_bytes != HEADER_SIZE:
            raise CorruptBatch(f"batch at offset {header.base_offset}: no records, but {header.size_bytes} bytes")
        if header.record_count == 0 or header.last_offset < first_offset or header.base_offset >= stop_offset:
            continue
        if header.compression is Compression.NONE:
            if packed:
                yield from _decode(_group_packed(packed), first_offset, stop_offset, fields)
                packed, packed_bytes = [], 0
            raw.append((start, header))
            continue
        if raw:
            yield from _decode(_group_raw(buffer, raw), first_offset, stop_offset, fields)
            raw = []
        data = unpack_records(buffer, start, header, max_bytes)
        if header.record_count > GROUP_RECORDS:
            if packed:
                yield from _decode(_group_packed(packed), first_offset, stop_offset, fields)
                packed, packed_bytes = [], 0
            with memoryview(data) as view:
                for piece in in_pieces(view, header, GROUP_RECORDS):
                    yield from _decode(_Group(data, [piece]), first_offset, stop_offset, fields)
            continue
        packed.append((header, data))
        packed_bytes += len(data)
        if packed_bytes >= GROUP_BYTES:
            yield from _decode(_group_packed(packed), first_offset, stop_offset, fields)
            packed, packed_bytes = [], 0
    if packed:
        yield from _decode(_group_packed(packed), first_offset, stop_offset, fields)
    if raw:
        yield from _decode(_group_raw(buffer, raw), first_offset, stop_offset, fields)


def _group_raw(buffer: Buffer, batches: list[tuple[int, BatchHeader]]) -> _Group:
    group = _Group(buffer)
    for start, header in batches:
        if start + header.size_bytes > len(buffer):
            raise CorruptBatch(f"batch at byte {start}: {header.size_bytes} bytes long, but the buffer ends before")
        group.batches.append((header, start + HEADER_SIZE, start + header.size_bytes))
    return group


def _group_packed(batches: list[tuple[BatchHeader, bytes | bytearray]]) -> _Group:
    # A single batch is used without a copy; several are joined, so that one call makes columns of them all.
    group = _Group(batches[0][1] if len(batches) == 1 else b"".join(data for _, data in batches))
    at = 0
    for header, data in batches:
        group.batches.append((header, at, at + len(data)))
        at += len(data)
    return group


def _decode(group: _Group, first_offset: int, stop_offset: int, fields: frozenset[str]) -> Iterator[RecordColumns]:
    found = None
    if compiled.hot is not None:
        found = _columns_compiled(group, first_offset, stop_offset, fields)
    if found is None:
        found = _columns_of_records(group, first_offset, stop_offset, fields)
    if len(found):
        yield found


def _columns_of_records(group: _Group, first_offset: int, stop_offset: int, fields: frozenset[str]) -> RecordColumns:
    """The columns by the Python path, from decoded records. Raises CorruptBatch."""
    import numpy as np
    import pyarrow as pa

    records: list[Record] = []
    kinds: list[int] = []
    with memoryview(group.data) as view:
        for header, at, end in group.batches:
            decoded = decode_unpacked(bytes(view[at:end]), header)
            wanted = [record for record in decoded if first_offset <= record.offset < stop_offset]
            records += wanted
            kinds += [header.timestamp_type] * len(wanted)
    return RecordColumns(
        offset=np.array([record.offset for record in records], np.int64),
        timestamp_ms=np.array([record.timestamp_ms for record in records], np.int64),
        timestamp_type=np.array(kinds, np.int32),
        key=pa.array([record.key for record in records], pa.binary()) if "key" in fields else None,
        value=pa.array([record.value for record in records], pa.binary()) if "value" in fields else None,
        headers=pa.array([record.headers or None for record in records], headers_type())
        if "headers" in fields
        else None,
    )


def _columns_compiled(
    group: _Group, first_offset: int, stop_offset: int, fields: frozenset[str]
) -> RecordColumns | None:
    """The columns by the compiled path; None if it finds something unusual, which the Python path has to decide."""
    import numpy as np
    import pyarrow as pa

    spans = [
        (
            at,
            end,
            header.record_count,
            header.base_offset,
            header.last_offset_delta,
            header.max_timestamp if header.timestamp_type else header.base_timestamp,
            header.timestamp_type,
        )
        for header, at, end in group.batches
    ]
    assert compiled.hot is not None
    wanted = ("key" in fields, "value" in fields, "headers" in fields)
    found = compiled.hot.columns(group.data, spans, first_offset, stop_offset, *wanted, pa.allocate_buffer)
    if found is None:
        return None
    count, offset, timestamp, kind, key, value, headers = found
    return RecordColumns(
        offset=np.frombuffer(offset, np.int64),
        timestamp_ms=np.frombuffer(timestamp, np.int64),
        timestamp_type=np.frombuffer(kind, np.int32),
        key=_made_binary(key),
        value=_made_binary(value),
        headers=_made_headers(count, headers),
    )


def _made_binary(column: Column | None, kind: Any = None) -> Any:
    """A binary (or `kind`) array from its finished buffers."""
    import pyarrow as pa

    if column is None:
        return None
    count, nulls, validity, offsets, data = column
    kind = kind or pa.binary()
    if nulls == count:
        return pa.nulls(count, kind)
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, count, buffers, nulls)


def _made_headers(count: int, lists: Lists | None) -> Any:
    """The headers column from its finished buffers."""
    import pyarrow as pa

    if lists is None:
        return None
    without, validity, offsets, names, contents = lists
    if offsets is None:
        return pa.nulls(count, headers_type())
    key, value = _made_binary(names, pa.string()), _made_binary(contents)
    pairs = pa.StructArray.from_arrays([key, value], ["key", "value"])
    buffers = [pa.py_buffer(validity) if without else None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(headers_type(), count, buffers, without, children=[pairs])
