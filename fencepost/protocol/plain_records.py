"""Records of one large batch by numpy: where everything lies is found for all at once, then they are cut out."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING

from fencepost.protocol.batch_header import BatchHeader, CorruptBatch
from fencepost.protocol.column_types import BatchGroup
from fencepost.protocol.plain_columns import places
from fencepost.protocol.records import Record

if TYPE_CHECKING:
    from fencepost.protocol.plain_columns import Ints

_HALF = range(-(2**62), 2**62)
_NINE_BYTES = 56
"""Bits of a varint that takes nine bytes at most, so that neither it nor its sum with a number of `_HALF` overflows."""


def records_by_numpy(data: bytes, header: BatchHeader) -> list[Record] | None:
    """The records of a batch without headers; None where there are headers, or anything that is not as it should be.

    What comes near the end of 64 bits is left to the loop in Python, too, whose numbers know no end.
    """
    if header.base_timestamp not in _HALF or header.base_offset not in _HALF:
        return None
    try:
        at = places(BatchGroup(data, [header], [(0, len(data))]), _NINE_BYTES)
    except CorruptBatch:
        return None
    if at.header_count.any():
        return None
    offsets = (at.delta + header.base_offset).tolist()
    if header.timestamp_type:
        times: Iterable[int] = repeat(header.max_timestamp)
    else:
        times = (at.time + header.base_timestamp).tolist()
    fields = zip(offsets, times, _cut(data, at.key_at, at.key_size), _cut(data, at.value_at, at.value_size), repeat(()))
    return list(map(tuple.__new__, repeat(Record), fields))


def _cut(data: bytes, at: Ints, size: Ints) -> Iterable[bytes | None]:
    missing = size < 0
    if missing.all():
        return repeat(None)
    ends = (at + size).tolist()
    if missing.any():
        return [data[start:end] if end >= start else None for start, end in zip(at.tolist(), ends, strict=True)]
    return [data[start:end] for start, end in zip(at.tolist(), ends, strict=True)]
