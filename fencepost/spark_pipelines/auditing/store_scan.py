"""Reads one piece of a cluster's stores in a task of an audit: the rows of the cut, and the batches they stand for.

Brokers may merge, compact and delete rows meanwhile. A row that has moved is looked up again: its batches are then
compared with the row of the cut. Offsets that were deleted or compacted since are reported as changed: no fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from fencepost.broker.cluster.engine import Placement, Row, RowKind, slot_of
from fencepost.broker.cluster.objects.object_store import ObjectMissing, place_name
from fencepost.broker.cluster.objects.row_objects import RowObjects
from fencepost.broker.cluster.reading.row_reading import Foreign, bytes_in_objects, rows_of, with_bytes
from fencepost.broker.cluster.reading.stamping import stamp
from fencepost.broker.cluster.verify.row_checks import row_differences
from fencepost.broker.log.storage.store import Bytes, CorruptLogFile
from fencepost.protocol.batch_header import BatchHeader, CorruptBatch, assign_offset, iter_headers
from fencepost.spark_connector.source.direct_reader import parts_of, read_ahead
from fencepost.spark_connector.source.store_cluster import StoreCluster
from fencepost.spark_pipelines.auditing.facts import CHANGED, DIFFERS, LOST, Fact, fact_of, indexed, of_row
from fencepost.spark_pipelines.auditing.plan import StorePiece

DELETED = "deleted by retention, DeleteRecords, or with the topic while the audit ran"
COMPACTED = "compacted while the audit ran"


def store_facts(piece: StorePiece) -> Iterator[Fact]:
    """The batches of the piece's rows, how the rows differ from them, and the aborted transactions of the cut.

    Raises StoreUnavailable.
    """
    for one in piece.aborted:
        yield indexed(*piece.tp, piece.number, one.producer_id, one.first_offset, one.last_offset)
    cluster = StoreCluster(piece.settings)
    try:
        yield from _Scan(cluster, piece).facts()
    finally:
        cluster.close()


class _Read(NamedTuple):
    row: Row
    data: Bytes | CorruptLogFile | None
    """None: the bytes are not where the cut had them."""


class _Scan:
    def __init__(self, cluster: StoreCluster, piece: StorePiece) -> None:
        self._cluster = cluster
        self._piece = piece
        self._position = 0
        """The number of facts so far: their order."""

    def facts(self) -> Iterator[Fact]:
        for row, data in read_ahead(list(parts_of(self._piece.rows)), self._read):
            if data is None:
                yield from self._moved(row)
            elif isinstance(data, CorruptLogFile):
                yield self._of_row(LOST, row.base, row.end, str(data))
            else:
                yield from self._of_content(row, bytearray(data))

    # Reading; a thread does this ahead

    def _read(self, rows: Sequence[Row]) -> list[_Read]:
        inline = self._inline(rows)
        in_objects = [row for row in rows if row.placement.object_id and row.placement.size_bytes]
        _, row_objects = self._cluster.stores()
        try:
            data: dict[Placement, bytearray] | None = self._cluster.with_retries(
                lambda: bytes_in_objects(row_objects, in_objects)
            )
        except CorruptLogFile:
            data = None  # one of the rows: each is read for itself
        return [_Read(row, self._bytes_of(row, inline, data)) for row in rows]

    def _inline(self, rows: Sequence[Row]) -> dict[Row, bytes]:
        """The bytes of those rows that the database still has inline."""
        if all(row.placement.object_id for row in rows):
            return {}
        engine, _ = self._cluster.stores()
        log, start, end = self._piece.log, rows[0].base, rows[-1].end
        now = self._cluster.with_retries(lambda: rows_of(engine, log, start, end, inline=True))
        return {row._replace(inline=None): row.inline for row in now if row.inline is not None}

    def _bytes_of(
        self, row: Row, inline: dict[Row, bytes], data: dict[Placement, bytearray] | None
    ) -> Bytes | CorruptLogFile | None:
        if not row.placement.object_id:
            return inline.get(row)
        if not row.placement.size_bytes:
            return b""
        if data is not None:
            return data[row.placement]
        _, row_objects = self._cluster.stores()
        try:
            return self._cluster.with_retries(lambda: row_objects.read(row.placement))
        except ObjectMissing:
            return None
        except CorruptLogFile as error:
            return error

    # Facts

    def _of_content(self, row: Row, content: bytearray) -> Iterator[Fact]:
        try:
            stamp(row, content, place_name(row.placement.object_id))
        except CorruptLogFile as error:
            if not _offsets_fit(row, content):
                yield self._of_row(LOST, row.base, row.end, str(error))
                return
            # Only a checksum is wrong: the fact of its batch says so.
        batches = list(iter_headers(content))
        for what in row_differences(row, batches, content, self._piece.folded_to):
            yield self._of_row(DIFFERS, row.base, row.end, what)
        yield from self._of_batches(batches, content)

    def _of_batches(self, batches: Sequence[tuple[int, BatchHeader]], content: bytearray) -> Iterator[Fact]:
        for at, header in batches:
            if header.last_offset >= self._piece.start:
                yield fact_of(*self._piece.tp, self._piece.number, self._next(), content, at, header)

    def _moved(self, row: Row) -> Iterator[Fact]:
        """The batches of a row that is not where the cut had it."""
        missing: list[Placement] = []
        _, row_objects = self._cluster.stores()
        while True:
            start, rows = self._cluster.with_retries(lambda: self._now(row))
            if start >= row.end:
                yield self._of_row(CHANGED, row.base, row.end, DELETED)
                return
            lost = self._lost(start, rows)
            try:
                found = [] if lost else self._cluster.with_retries(partial(_read_rows, row_objects, rows))
            except ObjectMissing as error:
                places = [one.placement for one in rows]
                # If nothing has replaced the row, its bytes are lost. Otherwise a newer row may have them.
                lost = str(error) if row in rows or places == missing else None
                missing = places
                if lost is None:
                    continue
            except CorruptLogFile as error:
                lost = str(error)
            if lost is not None:
                yield self._of_row(LOST, row.base, row.end, lost)
                return
            break
        cut_off = rows[0].base > row.base
        if cut_off:
            yield self._of_row(CHANGED, row.base, rows[0].base, DELETED)
        content, batches = bytearray(), list[tuple[int, BatchHeader]]()
        for one, data in found:
            whole = bytearray(data)
            try:
                stamp(one, whole, place_name(one.placement.object_id))
            except CorruptLogFile as error:
                yield self._of_row(LOST, max(row.base, one.base), row.end, str(error))
                return
            for at, header in iter_headers(whole):
                if row.base <= header.base_offset < row.end:
                    batches.append((len(content), header))
                    content += whole[at : at + header.size_bytes]
        differences = [] if cut_off else row_differences(row, batches, content, self._piece.folded_to)
        if differences and self._piece.compacted:
            yield self._of_row(CHANGED, row.base, row.end, COMPACTED)
            return
        for what in differences:
            yield self._of_row(DIFFERS, row.base, row.end, what)
        yield from self._of_batches(batches, content)

    def _lost(self, start: int, rows: Sequence[Row]) -> str | None:
        """Why the rows that are there now cannot have the bytes; None if they may have them."""
        if not rows:
            return f"the row disappeared while the audit ran, although the log begins at offset {start}"
        if any(one.inline is None and not one.placement.object_id for one in rows):
            return "the row has neither bytes nor an object"
        return None

    def _now(self, row: Row) -> tuple[int, list[Row]]:
        """The log start offset, and the rows that stand for the offsets of a row of the cut."""
        engine, _ = self._cluster.stores()
        log = self._piece.log
        head = next((head for head in engine.heads([slot_of(log)]) if head.log == log), None)
        if head is None:
            return row.end, []
        return head.start, rows_of(engine, log, row.base, row.end, inline=True)

    def _of_row(self, kind: str, start: int, end: int, note: str) -> Fact:
        return of_row(kind, *self._piece.tp, self._piece.number, self._next(), (start, end - 1), note)

    def _next(self) -> int:
        self._position += 1
        return self._position


def _read_rows(row_objects: RowObjects, rows: Sequence[Row]) -> list[Foreign]:
    return with_bytes(rows, bytes_in_objects(row_objects, rows))


def _offsets_fit(row: Row, content: bytearray) -> bool:
    """Set the offsets of a row's batches, whatever their checksums are. False if the bytes are not its batches."""
    offset, end, count = row.base, 0, 0
    try:
        for position, header in iter_headers(content):
            if row.kind is RowKind.RUN:
                assign_offset(content, position, offset, row.leader_epoch)
            elif header.base_offset < offset:
                return False
            else:
                offset = header.base_offset
            offset += header.last_offset_delta + 1
            end, count = position + header.size_bytes, count + 1
    except CorruptBatch:
        return False
    fits = offset == row.end if row.kind is RowKind.RUN else offset <= row.end
    return fits and (end, count) == (row.placement.size_bytes, row.batches) == (len(content), count)
