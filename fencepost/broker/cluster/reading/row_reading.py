"""Reads rows and their bytes with few requests: many logs in one statement, close ranges of an object in one request.

All functions block.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from fencepost.broker.cluster.engine import ROWS_MAX, Engine, Placement, Row, Span
from fencepost.broker.log.storage.store import Bytes

SPANS_AT_ONCE = 100
"""The most logs in one statement, each with the engine's limit of rows."""
GAP_BYTES = 128 << 10
"""Ranges of one object that are so close come in one request."""


class Ranges(Protocol):
    """The part of `RowBytes` that reads."""

    def read_many(self, places: Sequence[Placement]) -> Iterator[bytes]: ...


class Foreign(NamedTuple):
    """A row of another broker, with its bytes."""

    row: Row
    data: Bytes


def all_rows(engine: Engine, spans: Sequence[Span], inline: bool = False) -> list[list[Row]]:
    """All rows that overlap each span, in the order of the spans. Raises StoreUnavailable."""
    found: list[list[Row]] = [[] for _ in spans]
    left = list(enumerate(spans))
    while left:
        page, left = left[:SPANS_AT_ONCE], left[SPANS_AT_ONCE:]
        for (number, span), rows in zip(page, engine.many_rows([span for _, span in page], inline), strict=True):
            found[number] += rows
            if len(rows) >= ROWS_MAX and rows[-1].end < span.end:
                left.append((number, span._replace(start=rows[-1].end)))
    return found


def rows_of(engine: Engine, log: int, start: int, end: int, inline: bool = False) -> list[Row]:
    """All rows of a log that overlap [start, end). Raises StoreUnavailable."""
    return all_rows(engine, [Span(log, start, end)], inline)[0]


def foreign_rows(engine: Engine, ranges: Ranges, log: int, start: int, end: int) -> list[Foreign]:
    """The rows of a log in [start, end) with their bytes. Raises StoreUnavailable and CorruptLogFile."""
    return many_foreign_rows(engine, ranges, [Span(log, start, end)])[0]


def many_foreign_rows(engine: Engine, ranges: Ranges, spans: Sequence[Span]) -> list[list[Foreign]]:
    """As `foreign_rows`, for each of these spans."""
    found = all_rows(engine, spans, inline=True)
    data = bytes_in_objects(ranges, chain.from_iterable(found))
    return [with_bytes(rows, data) for rows in found]


def with_bytes(rows: Iterable[Row], data: dict[Placement, bytearray]) -> list[Foreign]:
    return [Foreign(row, row.inline if row.inline is not None else data[row.placement]) for row in rows]


def bytes_in_objects(ranges: Ranges, rows: Iterable[Row]) -> dict[Placement, bytearray]:
    """The bytes of those rows that are not inline. Raises StoreUnavailable and CorruptLogFile."""
    places = sorted({row.placement for row in rows if row.inline is None})
    groups = list(_close(places))
    wholes = [_range_of(group) for group in groups]
    found: dict[Placement, bytearray] = {}
    for whole, group, data in zip(wholes, groups, ranges.read_many(wholes), strict=True):
        view = memoryview(data)
        for place in group:
            at = place.position - whole.position
            found[place] = bytearray(view[at : at + place.size_bytes])  # a copy: the gaps are not kept
    return found


def _close(places: Iterable[Placement]) -> Iterator[list[Placement]]:
    """The sorted places, divided where the object changes or a gap is large."""
    group: list[Placement] = []
    for place in places:
        if group and (place.object_id != group[0].object_id or place.position - _end(group[-1]) > GAP_BYTES):
            yield group
            group = []
        group.append(place)
    if group:
        yield group


def _range_of(group: Sequence[Placement]) -> Placement:
    first = group[0]
    return Placement(first.object_id, first.position, max(map(_end, group)) - first.position)


def _end(place: Placement) -> int:
    return place.position + place.size_bytes
