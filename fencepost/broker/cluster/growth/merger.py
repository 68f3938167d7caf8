"""Carries merges out: reads the rows of many logs, puts their new bytes into one object, and replaces the rows.

A kill between the put and a replacement leaves a claim, which garbage collection deletes.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from fencepost.broker.cluster.commit.rounds import RowBytes
from fencepost.broker.cluster.engine import (
    Changed,
    ClaimLost,
    Engine,
    Identity,
    Placement,
    Replacement,
    Row,
    Snapshot,
    Span,
)
from fencepost.broker.cluster.growth.merging import Group, Merge, merged
from fencepost.broker.cluster.objects.object_store import place_name
from fencepost.broker.cluster.reading.folding import EPOCHS, PRODUCERS, LogState
from fencepost.broker.cluster.reading.row_index import slim
from fencepost.broker.cluster.reading.row_reading import all_rows, bytes_in_objects
from fencepost.broker.cluster.reading.stamping import checksum_of, stamp
from fencepost.broker.log.storage.store import Bytes

REST_PER_WORK = 1.0
"""How long the thread sleeps for each second of work: other threads of the process wait for it."""

logger = logging.getLogger(__name__)


class MergeJob(NamedTuple):
    """One log's merge, and when its producers are forgotten (row P10)."""

    log_id: int
    name: str
    merge: Merge
    now_ms: int
    expiration_ms: int
    producer_ids_max: int


class NewRows(NamedTuple):
    """The rows that a log has now from `start` to `end`."""

    log_id: int
    start: int
    end: int
    rows: Sequence[Row]
    folded_to: int
    """The offset of the log's snapshots."""
    as_planned: bool
    """Whether the job was carried out; otherwise the log was not as the job expected."""


class _Built(NamedTuple):
    """A log's new rows, and the bytes of those that were copied: they have no bytes inline yet, but b"" there, and
    their positions are relative.
    """

    job: MergeJob
    rows: list[Row]
    parts: list[Bytes]
    snapshots: list[Snapshot]
    folded_to: int


class Merger:
    """Merges rows over a connection of its own. All methods block."""

    def __init__(
        self, engine: Engine, identity: Callable[[], Identity], row_bytes: RowBytes, inline_bytes: int
    ) -> None:
        self._engine = engine
        self._identity = identity
        self._row_bytes = row_bytes
        self._inline_bytes = inline_bytes

    def run(self, jobs: Sequence[MergeJob]) -> list[NewRows]:
        """Carry out these jobs, one for each log. Each log changes as a whole, or not at all.

        Raises StoreUnavailable and Fenced: some logs may have changed then, and `read` tells how. Raises
        CorruptLogFile.
        """
        snapshots = self._snapshots(jobs)
        found: list[NewRows] = []
        wanted: list[tuple[MergeJob, list[Row]]] = []
        for job, rows in zip(jobs, self._rows(jobs, inline=True), strict=True):
            state = LogState(job.name, snapshots.get(job.log_id, ()))
            # Below the start there may be runs that retention has dropped, but not deleted in the database yet.
            stale = job.merge.folds and state.end != job.merge.start
            if stale or [slim(row) for row in rows] != job.merge.rows:
                found.append(_as_found(job, rows, state.end))
            else:
                wanted.append((job, rows))
        copied = (row for job, rows in wanted for row in _copied(job.merge, rows))
        data = bytes_in_objects(self._row_bytes, copied)
        built = [self._build(job, rows, snapshots.get(job.log_id, ()), data) for job, rows in wanted]
        return found + self._replace(built)

    def read(self, jobs: Sequence[MergeJob]) -> list[NewRows]:
        """What these logs have now where the jobs' rows were. Raises StoreUnavailable."""
        snapshots = self._snapshots(jobs)
        found = []
        for job, rows in zip(jobs, self._rows(jobs), strict=True):
            folded_to = max((one.base for one in snapshots.get(job.log_id, ()) if one.kind == PRODUCERS), default=0)
            found.append(_as_found(job, rows, folded_to))
        return found

    def _rows(self, jobs: Sequence[MergeJob], inline: bool = False) -> list[list[Row]]:
        return all_rows(self._engine, [Span(job.log_id, job.merge.start, job.merge.end) for job in jobs], inline)

    def _snapshots(self, jobs: Sequence[MergeJob]) -> dict[int, list[Snapshot]]:
        found: dict[int, list[Snapshot]] = {}
        logs = [job.log_id for job in jobs]
        for kind in (PRODUCERS, EPOCHS):
            for snapshot in self._engine.snapshots(logs, kind):
                found.setdefault(snapshot.log, []).append(snapshot)
        return found

    def _build(
        self, job: MergeJob, rows: Sequence[Row], snapshots: Sequence[Snapshot], data: dict[Placement, bytearray]
    ) -> _Built:
        """A log's new rows. Raises CorruptLogFile."""
        began = time.thread_time()
        state = LogState(job.name, snapshots)
        new: list[Row] = []
        parts: list[Bytes] = []
        position = 0
        left = iter(rows)
        for planned in job.merge.groups:
            group: Group = [next(left) for _ in planned]
            aborted = [one for row in group for one in state.follow(row)]
            if len(group) == 1:
                new.append(merged(group, aborted, group[0].placement, group[0].inline))
                continue
            mine: list[Bytes] = []
            for row in group:
                place = row.placement
                whole = data[place] if row.inline is None else bytearray(row.inline)
                stamp(row, whole, place_name(place.object_id))
                mine.append(whole)
            size_bytes = sum(map(len, mine))
            new.append(merged(group, aborted, Placement(0, position, size_bytes), b"", checksum_of(mine)))
            parts += mine
            position += size_bytes
        kept: list[Snapshot] = []
        if job.merge.folds:
            state.producers.expire(job.now_ms, job.expiration_ms)
            state.producers.shrink(job.producer_ids_max)
            kept = state.snapshots(job.log_id)
        time.sleep(REST_PER_WORK * (time.thread_time() - began))
        return _Built(job, new, parts, kept, state.end)

    def _replace(self, built: Sequence[_Built]) -> list[NewRows]:
        """Put the bytes, and replace the rows of each log."""
        parts = [part for one in built for part in one.parts]
        inline = sum(map(len, parts)) <= self._inline_bytes
        object_id = 0 if inline or not parts else self._row_bytes.put(parts)
        claimed = [object_id] if object_id else []
        position = 0
        found = []
        for one in built:
            job, merge = one.job, one.job.merge
            whole = b"".join(one.parts) if inline else b""
            rows = [_placed(row, object_id, position, whole) for row in one.rows]
            position += sum(map(len, one.parts))
            uses = any(row.placement.object_id == object_id for row in rows)
            bases = [row.base for row in merge.rows]
            replacement = Replacement(
                job.log_id, merge.start, merge.end, bases, rows, claimed if uses else [], one.snapshots
            )
            try:
                self._engine.replace(self._identity(), replacement)
            except Changed:
                found += self.read([job])
                continue
            except ClaimLost as error:
                logger.warning(
                    "the database does not have the claim of a merged object any more, the rows are merged again: %s",
                    error,
                )
                self._row_bytes.forget_claims()
                return found + self.read([job for job, *_ in built[len(found) :]])
            if uses:
                claimed = []  # the first row made it live
            found.append(NewRows(job.log_id, merge.start, merge.end, rows, one.folded_to, True))
        return found


def _copied(merge: Merge, rows: Sequence[Row]) -> Iterable[Row]:
    """The rows whose bytes a merge needs."""
    left = iter(rows)
    for group in merge.groups:
        found = [next(left) for _ in group]
        if len(group) > 1:
            yield from found


def _placed(row: Row, object_id: int, position: int, whole: bytes) -> Row:
    """A new row with its final place; one that was not copied as it is."""
    if row.inline != b"":
        return row
    place = row.placement
    if not object_id:
        part = whole[place.position : place.position + place.size_bytes]
        return row._replace(placement=Placement(0, 0, place.size_bytes), inline=part)
    return row._replace(placement=Placement(object_id, position + place.position, place.size_bytes), inline=None)


def _as_found(job: MergeJob, rows: Sequence[Row], folded_to: int) -> NewRows:
    start, end = job.merge.start, job.merge.end
    if rows:
        start, end = min(start, rows[0].base), max(end, rows[-1].end)
    return NewRows(job.log_id, start, end, rows, folded_to, False)
