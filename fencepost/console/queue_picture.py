"""The picture of a share partition: a bar from its start offset to the end of the log, coloured by state. Pure."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from fencepost.client.admin.queues import NEW, QueuePartition

WIDTH: Final = 1000.0
HEIGHT: Final = 34.0
COLUMNS: Final = 200
"""The records in flight are drawn in at most this many columns; one of several states is divided by their shares."""
FLIGHT_SHARE: Final = 0.7
"""The least share of the width for the records in flight, however many wait behind them."""
HELD_BACK: Final = "open"
ORDER: Final = ("acquired", "pending", "available", "archiving", "archived", "acknowledged", NEW)
"""From the top of a column: what is to be done comes first."""


class Box(NamedTuple):
    """A rectangle of one state; `first` and `last` are the offsets that it stands for."""

    x: float
    y: float
    width: float
    height: float
    state: str
    first: int
    last: int


class Picture(NamedTuple):
    """What is drawn, from `start` (the first offset that is not done) over `next` (the first new one) to `end`."""

    boxes: tuple[Box, ...]
    next_x: float
    start: int
    next: int
    end: int


def picture(one: QueuePartition, *, read_committed: bool) -> Picture | None:
    """The picture; None if the broker reports no states. Of a read_committed group, what is above the LSO is open."""
    states = one.offset.states
    if states is None:
        return None
    start, after, end = states.start_offset, states.next_offset, max(one.reach.high, states.next_offset)
    flight, waiting = after - start, end - after
    share = 1.0 if not waiting else 0.0 if not flight else max(FLIGHT_SHARE, flight / (flight + waiting))
    next_x = round(WIDTH * share, 2)
    boxes = list(_joined(_columns(one, next_x))) if flight else []
    stable = min(max(one.reach.stable, after), end) if read_committed else end
    unit = (WIDTH - next_x) / waiting if waiting else 0.0
    for first, stop, state in ((after, stable, NEW), (stable, end, HELD_BACK)):
        if stop > first:
            x = next_x + (first - after) * unit
            boxes.append(Box(round(x, 2), 0.0, round((stop - first) * unit, 2), HEIGHT, state, first, stop - 1))
    return Picture(tuple(boxes), next_x, start, after, end)


def _columns(one: QueuePartition, width: float) -> Iterator[Box]:
    """The records in flight, column by column."""
    states = one.offset.states
    assert states is not None
    start, flight = states.start_offset, states.next_offset - states.start_offset
    edges = [start + flight * number // min(COLUMNS, flight) for number in range(min(COLUMNS, flight) + 1)]
    ranges, at = states.whole(), 0
    for first, stop in pairwise(edges):
        counts: dict[str, int] = {}
        while at < len(ranges) and ranges[at].last_offset < first:
            at += 1
        look = at
        while look < len(ranges) and ranges[look].first_offset < stop:
            found = ranges[look]
            inside = min(found.last_offset + 1, stop) - max(found.first_offset, first)
            state = NEW if found.is_new else found.state
            counts[state] = counts.get(state, 0) + inside
            look += 1
        x = (first - start) / flight * width
        column, y, total = (stop - first) / flight * width, 0.0, sum(counts.values())
        for state in sorted(counts, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
            height = HEIGHT * counts[state] / total
            yield Box(round(x, 2), round(y, 2), round(column, 2), round(height, 2), state, first, stop - 1)
            y += height


def _joined(boxes: Iterator[Box]) -> Iterator[Box]:
    """Neighbours of one state and the full height as one."""
    before: Box | None = None
    for box in boxes:
        if before is not None and box.height == before.height == HEIGHT and box.state == before.state:
            before = before._replace(width=round(box.x + box.width - before.x, 2), last=box.last)
            continue
        if before is not None:
            yield before
        before = box
    if before is not None:
        yield before
