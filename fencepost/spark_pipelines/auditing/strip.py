"""A partition's offsets as a strip of equal cells, however long the log is: each knows how much of what is in it."""

from __future__ import annotations

from collections import Counter

CELLS = 240


class Strip:
    """Counts offsets by class in at most 2 * CELLS cells, which grow as the log does; nothing is kept per batch."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._width = 1
        self._cells: list[Counter[str]] = []

    def add(self, what: str, first: int, last: int) -> None:
        """Offsets `first` to `last` are `what`."""
        first = max(first, self._start)
        while last - self._start >= self._width * 2 * CELLS:
            self._fold()
        while first <= last:
            number = (first - self._start) // self._width
            while number >= len(self._cells):
                self._cells.append(Counter())
            stop = min(last, self._start + (number + 1) * self._width - 1)
            self._cells[number][what] += stop - first + 1
            first = stop + 1

    def cells(self, end: int) -> tuple[list[dict[str, int]], int]:
        """The cells, CELLS of them at most, up to `end`; and how many offsets each of them is."""
        while end - self._start > self._width * CELLS:
            self._fold()
        return [dict(cell) for cell in self._cells], self._width

    def _fold(self) -> None:
        """Two cells become one."""
        self._width *= 2
        pairs = zip(self._cells[::2], [*self._cells[1::2], Counter()], strict=False)
        self._cells = [one + other for one, other in pairs]
