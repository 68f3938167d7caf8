"""Records that are all alike but for their content, taken apart without numpy: every n-th byte of a batch is one slice.

Where keys, and values, are of one length each, and offsets follow one another, the length fields of all records stand a
fixed way apart. Such a column of bytes is compared as a whole, and `struct` cuts the contents out.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import NamedTuple

from fencepost.protocol.batch_header import BatchHeader

_ONE_BYTE, _TWO_BYTES = 64, 8192
_DELTAS = bytes(delta << 1 for delta in range(_ONE_BYTE))
"""The zigzag varints of offset deltas up to 63."""
_TIMES = [(time >> 1) ^ -(time & 1) for time in range(128)]
_LEAST_RUN = 5
_MAX_VARINT_BYTES = 3


class _Layout(NamedTuple):
    """Where things lie in a record; places count from its first byte, which is its length's."""

    size: int
    """Of the whole record, its length field included."""
    fixed: tuple[tuple[int, bytes], ...]
    """Places of bytes that are the same in all records, and these bytes: lengths, and that there are no headers."""
    time_at: int
    delta_at: int
    contents: Struct
    has_key: bool
    has_value: bool


@lru_cache(maxsize=1)
def _wide_deltas() -> tuple[bytes, bytes]:
    """First and second bytes of the zigzag varints of offset deltas from 64 to 8191."""
    deltas = range(_ONE_BYTE, _TWO_BYTES)
    return bytes(delta << 1 & 127 | 128 for delta in deltas), bytes(delta >> 6 for delta in deltas)


_latest: dict[bool, _Layout] = {}
"""The last one found, without and with two bytes for the offset delta: what is read next is mostly like it."""


def even_fields(data: bytes, header: BatchHeader) -> Iterable[tuple[object, ...]] | None:
    """(offset, timestamp in ms, key, value, no headers) of each record; None for any other batch, or a damaged one."""
    found: list[Iterable[tuple[object, ...]]] = []
    at, first, count = 0, 0, header.record_count
    if count - 1 > header.last_offset_delta:
        return None
    try:
        while first < count:
            wide = first >= _ONE_BYTE
            most = min((_TWO_BYTES if wide else _ONE_BYTE) - first, count - first)
            if not most:
                return None
            layout = _latest.get(wide)
            run = _run_length(data, at, layout, most) if layout is not None else 0
            if run < most:
                layout = _layout(data, at, wide)
                if layout is None:
                    return None
                _latest[wide] = layout
                run = _run_length(data, at, layout, most)
                if run < _LEAST_RUN and run < count - first:
                    return None
            assert layout is not None
            fields = _fields(data, at, layout, first, run, header)
            if fields is None:
                return None
            found.append(fields)
            at += run * layout.size
            first += run
    except IndexError:
        return None
    if at != len(data):
        return None
    return found[0] if len(found) == 1 else (one for fields in found for one in fields)


def _layout(data: bytes, at: int, wide: bool) -> _Layout | None:
    """Of the record at `at`, whose offset delta has two bytes if it is `wide`; None where the next is not like it."""
    begin = at
    size, at = _varint(data, at)
    end = at + (size >> 1)
    if size & 1 or data[begin:at] != (data[end : end + at - begin] or data[begin:at]):
        return None
    time_at = at + 1
    _, delta_at = _varint(data, time_at)
    sizes_at = delta_at + (2 if wide else 1)
    key_size, key_at = _varint(data, sizes_at)
    key_end = key_at + (key_size >> 1)
    value_size, value_at = _varint(data, key_end if not key_size & 1 else key_at)
    has_key, has_value = not key_size & 1, not value_size & 1
    value_end = value_at + (value_size >> 1) if has_value else value_at
    if value_end != end - 1 or data[value_end] or delta_at - time_at > 2:
        return None
    if (not has_key and key_size != 1) or (not has_value and value_size != 1):
        return None
    fixed = (
        *range(begin, time_at - 1),
        *range(sizes_at, key_at),
        *range(key_end if has_key else key_at, value_at),
        end - 1,
    )
    return _known_layout(
        end - begin,
        tuple([(place - begin, data[place : place + 1]) for place in fixed]),
        time_at - begin,
        delta_at - begin,
        (key_at - begin, key_size >> 1) if has_key else None,
        (value_at - begin, value_size >> 1) if has_value else None,
    )


@lru_cache(maxsize=64)
def _known_layout(
    size: int,
    fixed: tuple[tuple[int, bytes], ...],
    time_at: int,
    delta_at: int,
    key: tuple[int, int] | None,
    value: tuple[int, int] | None,
) -> _Layout:
    form, at = "", 0
    for part in (key, value):
        if part is not None:
            form += f"{part[0] - at}x{part[1]}s"
            at = part[0] + part[1]
    contents = Struct(f"{form}{size - at}x")
    return _Layout(size, fixed, time_at, delta_at, contents, key is not None, value is not None)


def _run_length(data: bytes, at: int, layout: _Layout, most: int) -> int:
    """How many records from `at` on, at most `most`, are laid out like this."""
    size = layout.size
    run = min(most, (len(data) - at) // size)
    stop = at + run * size
    for place, same in layout.fixed:
        column = data[at + place : stop : size]
        if column != same * len(column):
            run = min(run, len(column) - len(column.lstrip(same)))
            if not run:
                break
    return run


def _fields(
    data: bytes, at: int, layout: _Layout, first: int, run: int, header: BatchHeader
) -> Iterable[tuple[object, ...]] | None:
    if not run:
        return None
    size, _, time_at, delta_at, contents, has_key, has_value = layout
    stop = at + run * size
    column = data[at + delta_at : stop : size]
    if first < _ONE_BYTE:
        if column != _DELTAS[first : first + run]:
            return None
    else:
        low, high = _wide_deltas()
        place = first - _ONE_BYTE
        if column != low[place : place + run] or data[at + delta_at + 1 : stop : size] != high[place : place + run]:
            return None
    if delta_at - time_at == 1:
        times = _times(data[at + time_at : stop : size], header)
    else:
        times = _wide_times(data[at + time_at : stop : size], data[at + time_at + 1 : stop : size], header)
    if times is None:
        return None
    keys: Iterable[object] = repeat(None)
    values: Iterable[object] = repeat(None)
    cut = contents.iter_unpack(data if stop - at == len(data) else data[at:stop])
    if has_key and has_value:
        keys, values = zip(*cut, strict=True)
    elif has_value:
        values = [value for (value,) in cut]
    elif has_key:
        keys = [key for (key,) in cut]
    offset = header.base_offset + first
    return zip(range(offset, offset + run), times, keys, values, repeat(()))


def _times(column: bytes, header: BatchHeader) -> Iterable[int] | None:
    if not column.isascii():
        return None
    if header.timestamp_type:
        return repeat(header.max_timestamp)
    base, known = header.base_timestamp, _TIMES
    if not any(column):
        return repeat(base)
    return [base + known[time] for time in column]


def _wide_times(low: bytes, high: bytes, header: BatchHeader) -> Iterable[int] | None:
    if min(low) < 128 or not high.isascii():
        return None
    if header.timestamp_type:
        return repeat(header.max_timestamp)
    times = [(one & 127) | more << 7 for one, more in zip(low, high, strict=True)]
    return [header.base_timestamp + ((time >> 1) ^ -(time & 1)) for time in times]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint, and the place behind it; IndexError where it is longer than any here is expected to be."""
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    value, shift = byte & 127, 7
    for place in range(at + 1, at + _MAX_VARINT_BYTES):
        byte = data[place]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place + 1
        shift += 7
    raise IndexError
