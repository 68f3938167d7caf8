"""Compaction of a log whose rows are in the database (rows L4 to L6): the cleaner of files works on copies of the rows.

Only rows that a producer snapshot covers are compacted: the newest runs are what the active segment is to files.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import crc32c

from fencepost.broker.cluster.commit.rounds import RowBytes, producer_ids
from fencepost.broker.cluster.engine import Engine, Identity, Placement, Replacement, Row, RowKind, Snapshot
from fencepost.broker.cluster.objects.object_store import place_name
from fencepost.broker.cluster.reading.folding import CLEANED, aborted_in, encode_aborted
from fencepost.broker.cluster.reading.row_index import slim
from fencepost.broker.cluster.reading.row_reading import rows_of
from fencepost.broker.cluster.reading.stamping import checksum_of, stamp
from fencepost.broker.log.compaction.cleanable import CleanableRange
from fencepost.broker.log.compaction.cleaning import Cleaning, CleaningLimits, CleaningStats, drive
from fencepost.broker.log.config import NEVER_MS, LogConfig
from fencepost.broker.log.epochs import LeaderEpochs
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.storage.segment import Segment
from fencepost.broker.log.storage.segments import Segments
from fencepost.broker.log.storage.store import Store
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.topics import TopicPartition

OBJECT_BYTES = 64 << 20
"""How many new bytes go into one object."""
REST_PER_WORK = 1.0
"""How long the thread sleeps for each second of work."""
WORK_SECONDS = 0.005
"""The shortest work between two rests."""


class Ended(Exception):
    """The compaction is not needed any more: the broker stops, or was taken over."""


class CleanJob(NamedTuple):
    log_id: int
    tp: TopicPartition
    rows: Sequence[Row]
    """The log's rows below the end of the range."""
    range_: CleanableRange
    config: LogConfig
    """With the size of new segments."""
    producers: ProducerStates
    """A copy."""
    limits: CleaningLimits
    bytes_per_second: float
    now_ms: int
    aborted: Sequence[AbortedTransaction]
    """The aborted transactions that begin in these rows and end behind them: their rows do not name them."""


class CleanedPart(NamedTuple):
    """Rows that a part of a log has now, and the aborted transactions that end in it."""

    start: int
    end: int
    rows: Sequence[Row]
    aborted: Sequence[AbortedTransaction]


class Cleaned(NamedTuple):
    """What became of a compaction."""

    parts: Sequence[CleanedPart]
    cleaned_to: int
    """The first dirty offset; -1 if the log has changed, so the compaction was given up."""
    stats: CleaningStats


class _Opened(NamedTuple):
    segments: Segments
    producers: ProducerStates
    epochs: LeaderEpochs


def cleanable_rows(
    rows: Sequence[Row],
    folded_to: int,
    config: LogConfig,
    cleaned_to: int,
    log_start_offset: int,
    stable_offset: int,
    now_ms: int,
) -> CleanableRange:
    """As `cleanable_range` for files. The age of a row is that of its newest record."""
    first_dirty = max(cleaned_to, log_start_offset)
    sealed = [row for row in rows if row.end <= min(folded_to, stable_offset)]
    if config.min_compaction_lag_ms > 0:
        bound_ms = now_ms - config.min_compaction_lag_ms
        young = (n for n, row in enumerate(sealed) if row.end > first_dirty and row.max_timestamp_ms > bound_ms)
        sealed = sealed[: next(young, len(sealed))]
    dirty = [row for row in sealed if row.end > first_dirty]
    dirty_bytes = sum(row.placement.size_bytes for row in dirty)
    clean_bytes = sum(row.placement.size_bytes for row in sealed) - dirty_bytes
    upper = max([first_dirty, *(row.end for row in sealed[-1:])])
    return CleanableRange(first_dirty, upper, clean_bytes, dirty_bytes, delay_ms(dirty, config, now_ms))


def ending_behind(rows: Sequence[Row], aborted: Iterable[AbortedTransaction]) -> list[AbortedTransaction]:
    """Those aborted transactions that begin in these rows and end behind them."""
    end = rows[-1].end if rows else 0
    return [one for one in aborted if one.first_offset < end <= one.last_offset]


def delay_ms(rows: Sequence[Row], config: LogConfig, now_ms: int) -> int:
    """By how much the oldest of these rows exceeds `max.compaction.lag.ms`."""
    times = [row.max_timestamp_ms for row in rows if row.max_timestamp_ms > 0]
    if config.max_compaction_lag_ms >= NEVER_MS or not times:
        return 0
    return max(0, now_ms - config.max_compaction_lag_ms - min(times))


class Planned(NamedTuple):
    """The rows that a compaction has computed. Nothing is replaced yet."""

    replacements: Iterator[Replacement]
    """In the order in which they must happen: a row may lack what marks records before it as deleted. Each has one new
    row. The iterator puts an object before it returns the first row with bytes in it; it raises StoreUnavailable.
    """
    cleaned_to: int
    """The first dirty offset after all replacements."""
    stats: CleaningStats


class RowPlanner:
    """Computes compactions, and puts their objects. All methods block."""

    def __init__(
        self,
        engine: Engine,
        row_bytes: RowBytes,
        inline_bytes: int,
        scratch: Callable[[int], Store],
        ended: Callable[[], bool] = lambda: False,
        rest_per_work: float = REST_PER_WORK,
    ) -> None:
        """`scratch` returns an empty store for a number of bytes; the caller deletes it. `ended` is asked often.

        The thread sleeps `rest_per_work` seconds for each second of work.
        """
        self._engine = engine
        self._row_bytes = row_bytes
        self._inline_bytes = inline_bytes
        self._scratch = scratch
        self._ended = ended
        self._rest_per_work = rest_per_work

    def plan(self, job: CleanJob) -> Planned | None:
        """Compact copies of a log's rows; None if the database has other rows than the job.

        Raises StoreUnavailable, CorruptLogFile, CleaningInterrupted and OSError; and Ended.
        """
        start, end = job.rows[0].base, job.rows[-1].end
        rows = rows_of(self._engine, job.log_id, start, end, inline=True)
        if [slim(row) for row in rows] != list(job.rows):
            return None
        store = self._scratch(sum(row.placement.size_bytes for row in rows))
        sums: dict[int, int] = {}
        segments = [self._copied(store, row, sums) for row in rows]
        behind = Segment(store, end)
        for aborted in job.aborted:
            behind.aborted.append(aborted)
        opened = _Opened(Segments(store, [*segments, behind]), job.producers, LeaderEpochs(store, []))
        log = PartitionLog(job.tp, bytes(16), job.config, store, opened, log_start_offset=start)
        cleaning = Cleaning(log, job.range_, job.limits, job.now_ms)
        drive(cleaning.run(), _Pace(job.bytes_per_second, self._rest_per_work, self._go_on).rest)
        replacements = self._replacements(job, rows, list(opened.segments)[:-1], set(segments), sums)
        return Planned(replacements, cleaning.cleaned_to, cleaning.stats)

    def _go_on(self) -> None:
        if self._ended():
            raise Ended

    def _copied(self, store: Store, row: Row, sums: dict[int, int]) -> Segment:
        """A row as a segment. Raises StoreUnavailable, CorruptLogFile and Ended."""
        self._go_on()
        data = bytearray(row.inline if row.inline is not None else self._row_bytes.read(row.placement))
        segment = Segment(store, row.base)
        for position, offset, header in stamp(row, data, place_name(row.placement.object_id)):
            segment.note(position, header, offset, 4096)
        segment.next_offset = row.end
        segment.file.write(0, data)
        for aborted in aborted_in(row):
            segment.aborted.append(aborted)
        sums[row.base] = crc32c.crc32c(data)
        return segment

    def _replacements(
        self,
        job: CleanJob,
        rows: Sequence[Row],
        segments: Sequence[Segment],
        untouched: set[Segment],
        sums: dict[int, int],
    ) -> Iterator[Replacement]:
        """Put the segments that differ from their rows."""
        batch: list[tuple[Segment, list[Row], bytes]] = []
        size_bytes = 0
        for segment in segments:
            if segment in untouched:
                continue
            old = [row for row in rows if segment.base_offset <= row.base < segment.next_offset]
            data = segment.file.read(0, segment.size_bytes)
            if len(old) == 1 and crc32c.crc32c(data) == sums[old[0].base] and len(data) == old[0].placement.size_bytes:
                continue
            batch.append((segment, old, data))
            size_bytes += len(data)
            if size_bytes >= OBJECT_BYTES:
                yield from self._put(job, batch)
                batch, size_bytes = [], 0
        yield from self._put(job, batch)

    def _put(self, job: CleanJob, batch: Sequence[tuple[Segment, list[Row], bytes]]) -> Iterator[Replacement]:
        inline = sum(len(data) for *_, data in batch) <= self._inline_bytes
        object_id = 0 if inline else self._row_bytes.put([data for *_, data in batch])
        claimed, position = [object_id] if object_id else [], 0
        for segment, old, data in batch:
            headers = [header for _, header in iter_headers(data)]
            row = Row(
                base=old[0].base,
                count=old[-1].end - old[0].base,
                kind=RowKind.SEGMENT,
                leader_epoch=old[-1].leader_epoch,
                placement=Placement(object_id, position, len(data)),
                max_timestamp_ms=segment.max_timestamp_ms,
                batches=len(headers),
                producer_ids=producer_ids(headers),
                heads=None,
                aborted=encode_aborted(segment.aborted.all()),
                inline=data if inline else None,
                checksum=checksum_of([data]),
            )
            yield Replacement(job.log_id, row.base, row.end, [one.base for one in old], [row], claimed)
            claimed, position = [], position + (0 if inline else len(data))


class RowCleaner:
    """Compacts logs over a connection of its own. All methods block."""

    def __init__(self, engine: Engine, identity: Callable[[], Identity], planner: RowPlanner) -> None:
        self._engine = engine
        self._identity = identity
        self._planner = planner

    def run(self, job: CleanJob) -> Cleaned:
        """Compact one log. Each new segment takes the place of its rows in one transaction.

        Raises StoreUnavailable, Fenced, Changed and ClaimLost: a part of the log may be compacted then, and `read`
        tells which. Raises CorruptLogFile, CleaningInterrupted and OSError; and Ended.
        """
        start, end = job.rows[0].base, job.rows[-1].end
        planned = self._planner.plan(job)
        if planned is None:
            return Cleaned([self.read(job.log_id, start, end)], -1, CleaningStats())
        parts = [self.replace(replacement) for replacement in planned.replacements]
        self.note(job.log_id, start, planned.cleaned_to)
        return Cleaned(parts, planned.cleaned_to, planned.stats)

    def replace(self, replacement: Replacement) -> CleanedPart:
        """Replace rows of a compaction. Raises StoreUnavailable, Fenced, Changed and ClaimLost."""
        self._engine.replace(self._identity(), replacement)
        rows = replacement.rows
        return CleanedPart(replacement.start, replacement.end, rows, [one for row in rows for one in aborted_in(row)])

    def read(self, log_id: int, start: int, end: int) -> CleanedPart:
        """What a log has now in [start, end). Raises StoreUnavailable."""
        rows = rows_of(self._engine, log_id, start, end)
        return CleanedPart(start, end, rows, [one for row in rows for one in aborted_in(row)])

    def note(self, log_id: int, start: int, cleaned_to: int) -> None:
        """Store how far a log is compacted: a replacement of no rows, with a snapshot. `start` is in the log.

        Raises StoreUnavailable, Fenced and Changed.
        """
        snapshot = Snapshot(log_id, cleaned_to, CLEANED, b"")
        self._engine.replace(self._identity(), Replacement(log_id, start, start, (), (), (), [snapshot]))


class _Pace:
    """The rests of a compaction's thread between its steps. The thread may end there: `go_on` raises Ended."""

    def __init__(self, bytes_per_second: float, rest_per_work: float, go_on: Callable[[], None]) -> None:
        self._bytes_per_second = bytes_per_second
        self._rest_per_work = rest_per_work
        self._go_on = go_on
        self._began = time.monotonic()
        self._worked_since = time.thread_time()

    def rest(self, total_bytes: int) -> None:
        """Sleep, unless the thread has worked for less than `WORK_SECONDS` since the last rest."""
        worked = time.thread_time() - self._worked_since
        if worked >= WORK_SECONDS:
            self._go_on()
            time.sleep(
                max(worked * self._rest_per_work, self._began + total_bytes / self._bytes_per_second - time.monotonic())
            )
            self._worked_since = time.thread_time()
