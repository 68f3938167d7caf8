"""Reads one range of offsets from the stores in a Spark task: rows from the database, their bytes from the objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

from fencepost.broker.cluster.engine import Placement, Row, slot_of
from fencepost.broker.cluster.objects.object_store import ObjectMissing, place_name
from fencepost.broker.cluster.reading.row_reading import Foreign, bytes_in_objects, with_bytes
from fencepost.broker.cluster.reading.stamping import stamp
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.isolation import AbortedFilter
from fencepost.protocol.topics import IsolationLevel
from fencepost.spark_connector.source.ranges import OffsetRange
from fencepost.spark_connector.source.reader import Fetched, FetchSettings, arrow_batches_of, lost

if TYPE_CHECKING:
    from fencepost.broker.cluster.database.postgres import PostgresEngine
    from fencepost.broker.cluster.objects.row_objects import RowObjects

T = TypeVar("T")

ROWS_AT_ONCE = 100
BYTES_AT_ONCE = 16 << 20
"""The most bytes that are read ahead, unless one row has more."""


class Stores(Protocol):
    """The part of `StoreCluster` that a reader needs."""

    def stores(self) -> tuple[PostgresEngine, RowObjects]: ...
    def with_retries(self, attempt: Callable[[], T]) -> T: ...


class DirectReader:
    """Reads a range row by row, some rows ahead of its caller, unless `ahead` is False.

    Brokers may merge, compact and delete rows meanwhile. Records at an offset stay the same, so the reader looks the
    rows up again when an object is gone. Raises DataLossError as `RangeReader`, CorruptLogFile, and StoreUnavailable.
    """

    def __init__(self, cluster: Stores, work: OffsetRange, settings: FetchSettings, *, ahead: bool = True) -> None:
        assert work.stored is not None, "the planner has located the range"
        self.tp = work.tp
        self._cluster = cluster
        self._log = work.stored.log
        self.start = self._position = work.start
        self._stop = work.stop
        self._settings = settings
        self.limit_bytes = settings.max_decompressed_bytes
        self._ahead = ahead
        committed = settings.isolation is IsolationLevel.READ_COMMITTED
        self._filter = AbortedFilter(work.stored.aborted if committed else None)
        self._missing: list[Placement] = []
        """The rows whose bytes were not all there."""

    def arrow_batches(self) -> Iterator[object]:
        """The visible records of the range, as Arrow batches of the chosen columns."""
        return arrow_batches_of(self, self._stop, self._settings.columns)

    def fetches(self) -> Iterator[Fetched]:
        """The visible batches of each row up to the range's end, in order."""
        while self._position < self._stop:
            rows = self._cluster.with_retries(self._rows)
            if not rows:
                return
            try:
                for row, data in self._content(rows):
                    yield self._fetched(row, bytearray(data))
            except ObjectMissing:
                unread = [row.placement for row in rows if row.end > self._position]
                if unread == self._missing:
                    raise  # the rows have not changed, so the bytes are lost
                self._missing = unread

    def _rows(self) -> list[Row]:
        """The next rows; none if the records are gone. Raises DataLossError."""
        engine, _ = self._cluster.stores()
        head = next((head for head in engine.heads([slot_of(self._log)]) if head.log == self._log), None)
        if head is None:
            what = f"the partition was deleted, and offsets {self._position} to {self._stop} with it"
            lost(self.tp, what, self._settings)
            return []
        if head.start > self._position:
            resume_at = min(head.start, self._stop)
            held = f"the partition now holds {head.start} to {head.next}"
            lost(self.tp, f"offsets {self._position} to {resume_at} were deleted, {held}", self._settings)
            self.start = self._position = resume_at
            if resume_at == self._stop:
                return []
        found = engine.rows(self._log, self._position, self._stop, inline=True, limit=ROWS_AT_ONCE)
        if not found:
            why = f"no row has this offset, but the partition holds {head.start} to {head.next}"
            raise CorruptLogFile(f"{engine.place}, {self.tp}", self._position, why)
        return found

    def _content(self, rows: Sequence[Row]) -> Iterator[Foreign]:
        parts = list(parts_of(rows))
        if not self._ahead:
            for part in parts:
                yield from self._read(part)
            return
        yield from read_ahead(parts, self._read)

    def _read(self, rows: Sequence[Row]) -> list[Foreign]:
        _, row_objects = self._cluster.stores()
        return self._cluster.with_retries(lambda: with_bytes(rows, bytes_in_objects(row_objects, rows)))

    def _fetched(self, row: Row, data: bytearray) -> Fetched:
        stamp(row, data, place_name(row.placement.object_id))
        visible = []
        for at, header in iter_headers(data):
            if header.next_offset <= self._position:
                continue  # a merged row begins before this reader's position
            if header.base_offset >= self._stop:
                break
            if self._filter.admits(header, data, at):
                visible.append((at, header))
        self._position = min(row.end, self._stop)
        return Fetched(memoryview(data), visible, self._position)


def read_ahead(parts: Sequence[Sequence[Row]], read: Callable[[Sequence[Row]], list[T]]) -> Iterator[T]:
    """What `read` returns for each part. A thread reads one part ahead of the caller."""
    with ThreadPoolExecutor(1, "fencepost-direct") as pool:
        reading: Future[list[T]] = pool.submit(read, parts[0])
        for following in [*parts[1:], None]:
            found = reading.result()
            if following is not None:
                reading = pool.submit(read, following)
            while found:
                yield found.pop(0)  # a row that was decoded is not kept


def parts_of(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Adjacent rows in parts of at most BYTES_AT_ONCE, unless one row has more."""
    part: list[Row] = []
    size_bytes = 0
    for row in rows:
        if part and size_bytes + row.placement.size_bytes > BYTES_AT_ONCE:
            yield part
            part, size_bytes = [], 0
        part.append(row)
        size_bytes += row.placement.size_bytes
    yield part
