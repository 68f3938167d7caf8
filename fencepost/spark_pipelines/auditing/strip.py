"""A partition's offsets as a strip of a bounded number of equal cells. Each cell counts its offsets by class."""

from __future__ import annotations

from collections import Counter

CELLS = 240


class Strip:
    """Counts offsets by class in at most 2 * CELLS cells. Cells grow with the log; memory does not."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._width = 1
        self._cells: list[Counter[str]] = []

    def add(self, what: str, first: int, last: int) -> None:
        """Count the offsets `first` to `last` as class `what`."""
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
        """At most CELLS cells up to `end`, and the number of offsets per cell."""
        while end - self._start > self._width * CELLS:
            self._fold()
        return [dict(cell) for cell in self._cells], self._width

    def _fold(self) -> None:
        self._width *= 2
        pairs = zip(self._cells[::2], [*self._cells[1::2], Counter()], strict=False)
        self._cells = [one + other for one, other in pairs]
