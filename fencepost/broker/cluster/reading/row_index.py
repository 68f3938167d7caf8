"""The rows of one log that a broker knows of, without their bytes."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from fencepost.broker.cluster.engine import Row
from fencepost.broker.log.storage.txn_index import AbortedTransaction

_base = attrgetter("base")
_end = attrgetter("end")
_last_offset = attrgetter("last_offset")


class RowIndex:
    """Durable rows by rising offset, and the aborted transactions that end in them."""

    def __init__(
        self, start: int, rows: Sequence[Row] = (), aborted: Sequence[AbortedTransaction] = (), folded_to: int = 0
    ) -> None:
        self._rows = [slim(row) for row in rows]
        self._aborted = list(aborted)
        self._start = start
        self.folded_to = folded_to
        """The offset of the newest snapshot in the database: the rows from there on are runs with heads."""
        self.size_bytes = _bytes_of(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def first_offset(self) -> int:
        """The first offset of the oldest row; the log's start if there is none."""
        return self._rows[0].base if self._rows else self._start

    @property
    def rows(self) -> Sequence[Row]:
        """All rows; do not change the list."""
        return self._rows

    def add(self, row: Row) -> None:
        assert not self._rows or self._rows[-1].end <= row.base, "rows come in order"
        self._rows.append(slim(row))
        self.size_bytes += row.placement.size_bytes

    def replace(self, start: int, end: int, rows: Iterable[Row]) -> None:
        """Other rows took the place of those in [start, end). Of the new ones those below the log's start are left out.

        No row may reach over one of the two offsets.
        """
        first = bisect_left(self._rows, start, key=_base)
        last = bisect_left(self._rows, end, first, key=_base)
        new = [slim(row) for row in rows if row.end > self._start]
        self.size_bytes += _bytes_of(new) - _bytes_of(self._rows[first:last])
        self._rows[first:last] = new

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction; markers come in order."""
        if not self._aborted or self._aborted[-1].last_offset < aborted.last_offset:
            self._aborted.append(aborted)

    def replace_aborted(self, start: int, end: int, aborted: Sequence[AbortedTransaction]) -> None:
        """These are the aborted transactions that end in [start, end): compaction has removed the others."""
        first = bisect_left(self._aborted, start, key=_last_offset)
        last = bisect_left(self._aborted, end, first, key=_last_offset)
        self._aborted[first:last] = aborted

    def between(self, offset: int, upper_offset: int) -> Iterator[Row]:
        """The rows that overlap [offset, upper_offset), in order."""
        for number in range(max(0, bisect_right(self._rows, offset, key=_base) - 1), len(self._rows)):
            row = self._rows[number]
            if row.base >= upper_offset:
                return
            if row.end > offset:
                yield row

    def aborted_between(self, offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that overlap [offset, upper_offset), ordered by first offset (row I2)."""
        found = []
        for number in range(bisect_right(self._aborted, offset - 1, key=_last_offset), len(self._aborted)):
            entry = self._aborted[number]
            if entry.first_offset < upper_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_offset:
                break  # all that ended later began later, too
        found.sort(key=attrgetter("first_offset"))
        return found

    def drop_below(self, offset: int) -> None:
        """Forget rows wholly below `offset`, and the aborted transactions that end there."""
        count = bisect_right(self._rows, offset, key=_end)
        self.size_bytes -= _bytes_of(self._rows[:count])
        del self._rows[:count]
        del self._aborted[: bisect_right(self._aborted, offset - 1, key=_last_offset)]
        self._start = max(self._start, offset)


def _bytes_of(rows: Iterable[Row]) -> int:
    return sum(row.placement.size_bytes for row in rows)


def slim(row: Row) -> Row:
    return row._replace(heads=None, inline=None, aborted=b"", producer_ids=())
