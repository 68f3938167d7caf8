"""One broker's view of a log in the cluster's stores: appends wait for the next round, reads come from a cache.

The tail, which is what this broker has committed or followed, is in segments of the local scratch directory, as with
files. Older rows are fetched when they are read. Nothing local is needed after the process ends.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from fencepost.broker.cluster.commit.rounds import Cut, Rounds
from fencepost.broker.cluster.engine import NewLog, Row
from fencepost.broker.cluster.reading.row_index import RowIndex
from fencepost.broker.cluster.reading.row_reading import Foreign
from fencepost.broker.cluster.reading.stamping import keep, stamped
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.log_store import Conflict, Extent, FoundTime, LateLog, Missing, RowListener
from fencepost.broker.log.retention import SegmentFacts
from fencepost.broker.log.storage import timestamps
from fencepost.broker.log.storage.segment import NO_TIMESTAMP_MS, Segment
from fencepost.broker.log.storage.segments import Segments
from fencepost.broker.log.storage.store import Bytes, Piece, SyncTask
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.batch_header import BatchHeader, read_header


class ColdRows(Protocol):
    """The rows that are not in the tail."""

    def segment(self, log_id: int, row: Row) -> Segment | None:
        """The batches of a row, if they are here."""

    def load(self, log: "SharedLog", row: Row, ahead: Iterable[Row] = ()) -> Missing:
        """Begin to fetch a row, or join a fetch that is under way; `arrived` of the log is called at its end.

        `ahead` are the rows after it, which may be fetched, too.
        """


class SharedLog:
    """A `StoredLog` that binds offsets late, and the `Participant` of rounds."""

    keeps_producers = True
    unflushed = False
    closed_since_sync = 0
    has_unsynced_closed = False
    is_deleted = False

    def __init__(
        self, log_id: int, index: RowIndex, tail: Segments, rounds: Rounds, cold: ColdRows, new_log: NewLog | None
    ) -> None:
        self.log_id = log_id
        self.late: LateLog | None = self
        self.written_batches = 0
        self.written_bytes = 0
        self.end_offset = self._bound_end = tail.end_offset
        """Both ends: with and without the appends that wait."""
        self._index = index
        self._tail = tail
        self._rounds = rounds
        self._cold = cold
        self._new_log = new_log
        self._batches: list[bytearray] = []
        self._headers: list[BatchHeader] = []
        self._cut_count = 0
        self._fixed = 0
        """How many of the oldest waiting appends end with one that may not move."""
        self._listener: RowListener | None = None
        self._held = False
        self._closed = False
        self._cold_to = 0
        """Below it the tail is not read: compaction has changed the records."""
        self.cleaned_to = 0
        """The first offset that no compaction has reached."""

    def __len__(self) -> int:
        return max(1, len(self._index))

    @property
    def first_offset(self) -> int:
        return self._index.first_offset

    @property
    def size_bytes(self) -> int:
        return self._index.size_bytes

    # Appending

    def must_roll(self, size_bytes: int, header: BatchHeader, now_ms: int, config: LogConfig) -> bool:
        return False

    def roll(self, now_ms: int) -> None:
        """Nothing: rows become segments when they are merged."""

    def stage(self, head: Bytes, batch: Bytes) -> None:
        return None

    def unstage(self, staged: object) -> None:
        """Nothing: nothing is ever staged."""

    def append(self, expected_offset: int, batch: Bytes, header: BatchHeader, config: LogConfig) -> Conflict | None:
        """Let one batch, which the caller may not change until it is bound, wait for the next round."""
        if expected_offset != self.end_offset:
            return Conflict(expected_offset, self.end_offset)
        self._batches.append(batch if isinstance(batch, bytearray) else bytearray(batch))
        self._headers.append(header)
        self.end_offset += header.last_offset_delta + 1
        self.written_batches += 1
        self.written_bytes += len(batch)
        self._rounds.enlist(self, len(batch))
        return None

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        self._index.note_aborted(aborted)

    # Binding: `LateLog` and `Participant`

    def follow(self, listener: RowListener) -> None:
        self._listener = listener

    def fix_newest(self) -> None:
        self._fixed = len(self._batches)

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
        if self._batches:
            self._rounds.enlist(self)

    def deliver(self) -> None:
        self._rounds.deliver()

    def cut(self) -> Cut | None:
        if not self._batches or self._held:
            return None
        self._cut_count = len(self._batches)
        return Cut(
            self,
            self.log_id,
            self._bound_end,
            self._fixed > 0,
            list(self._batches),
            list(self._headers),
            read_header(self._batches[-1]).partition_leader_epoch,
            self._new_log,
        )

    def committed(self, row: Row, foreign: Sequence[Foreign]) -> None:
        count, self._cut_count = self._cut_count, 0
        if self._listener is None or not count:
            return  # closed meanwhile
        self._new_log = None
        if foreign:
            self._replay(foreign)
        assert self._bound_end == row.base, "what was moved still holds"
        self._fixed = max(0, self._fixed - count)
        batches, self._batches = self._batches[:count], self._batches[count:]
        headers, self._headers = self._headers[:count], self._headers[count:]
        for batch, header in zip(batches, headers, strict=True):
            keep(self._tail, batch, header, self._tail.end_offset)
        self._index.add(row)
        self._bound_end = self._tail.end_offset
        assert self._bound_end == row.end, "a row has the offsets of its batches"
        self._listener.bound(row.end)
        if self._batches:
            self._rounds.enlist(self)

    def refused(self, foreign: Sequence[Foreign]) -> None:
        self._cut_count = 0
        if self._listener is not None:
            self._replay(foreign)

    def apply_external(self, foreign: Sequence[Foreign]) -> None:
        """These rows of other brokers come next; none of this log's appends may be in a round. What waits for the next
        one is checked again behind them.
        """
        assert not self._cut_count, "a round reports such rows itself"
        self._replay(foreign)

    @property
    def bound_end(self) -> int:
        return self._bound_end

    @property
    def is_in_round(self) -> bool:
        return self._cut_count > 0

    def _replay(self, foreign: Sequence[Foreign]) -> None:
        """Rows of other brokers come first: keep them, and let the listener append what waited again."""
        self._new_log = None
        self._batches, self._headers, self._fixed = [], [], 0
        batches: list[bytearray] = []
        for row, data in foreign:
            assert row.base <= self._bound_end, f"{row.base} follows, not {self._bound_end}"
            for batch, header in stamped(row, data):
                if header.base_offset >= self._bound_end:  # otherwise a follower has it: rows were merged meanwhile
                    keep(self._tail, batch, header)
                    batches.append(batch)
            self._tail.skip_to(row.end)
            self._index.replace(row.base, row.end, [row])
            self._bound_end = row.end
        self.end_offset = self._bound_end
        if self._listener is not None and batches:
            self._listener.foreign(batches)

    # Merging

    @property
    def index(self) -> RowIndex:
        """The rows; only this log changes it."""
        return self._index

    @property
    def is_open(self) -> bool:
        return not self._closed

    def replaced(self, start: int, end: int, rows: Iterable[Row], folded_to: int) -> None:
        """The database has these rows instead of those in [start, end), and snapshots at `folded_to`."""
        self._index.replace(start, end, rows)
        self._index.folded_to = max(self._index.folded_to, folded_to)

    def compacted(self, start: int, end: int, rows: Iterable[Row], aborted: Sequence[AbortedTransaction]) -> None:
        """Compaction has written these rows in place of those in [start, end); these transactions end in them.

        The tail still has the removed records. Without the entries of their transactions, readers of committed records
        would take them for committed.
        """
        self._index.replace(start, end, rows)
        self._index.replace_aborted(start, end, aborted)
        self._cold_to = max(self._cold_to, end)
        self._drop_tail(end)

    @property
    def _tail_start(self) -> int:
        return max(self._tail.first_offset, self._cold_to)

    @property
    def tail_bytes(self) -> int:
        return self._tail.size_bytes

    def evict(self) -> list[SyncTask]:
        """Give up the oldest part of the tail: readers get these records as they get older ones. Raises OSError.

        Returns the tasks that delete its files.
        """
        if len(self._tail) == 1:
            self._tail.roll(NO_TIMESTAMP_MS)
        return self._tail.drop_front(1)

    def holds(self, row: Row) -> bool:
        found = next(self._index.between(row.base, row.end), None)
        return found is not None and (found.base, found.end, found.placement) == (row.base, row.end, row.placement)

    # Reading

    def read(self, offset: int, upper_offset: int, max_bytes: int, at_least_one: bool) -> Extent:
        tail_start = self._tail_start
        if offset >= tail_start:
            return self._tail.read(offset, upper_offset, max_bytes, at_least_one)
        parts: list[Piece] = []
        size_bytes = 0
        rows = self._index.between(offset, min(upper_offset, tail_start))
        for row in rows:
            if row.end <= offset:
                continue  # it shares the segment of the row before
            segment = self._cold.segment(self.log_id, row)
            if segment is None:
                missing = self._cold.load(self, row, self._index.between(row.end, tail_start))
                if parts:
                    break
                return Extent([], 0, offset, missing)
            part = segment.slice(offset, upper_offset, max_bytes - size_bytes, at_least_one and not parts)
            if part.size_bytes:
                parts.append(segment.piece(part))
                size_bytes += part.size_bytes
            offset = max(offset, part.end_offset)
            if part.end_offset < row.end or size_bytes >= max_bytes:
                break
        return Extent(parts, size_bytes, offset)

    def bytes_between(self, offset: int, upper_offset: int) -> int:
        """As for files, but older rows are counted as a whole, because only their sizes are here."""
        tail_start = self._tail_start
        cold = sum(row.placement.size_bytes for row in self._index.between(offset, min(upper_offset, tail_start)))
        return cold + (
            self._tail.bytes_between(max(offset, tail_start), upper_offset) if upper_offset > tail_start else 0
        )

    def aborted_between(self, offset: int, upper_offset: int) -> list[AbortedTransaction]:
        return self._index.aborted_between(offset, upper_offset)

    def first_at_or_after(self, timestamp_ms: int, start_offset: int, upper_offset: int) -> FoundTime | Missing | None:
        tail_start = self._tail_start
        for row in self._index.between(start_offset, min(upper_offset, tail_start)):
            if row.max_timestamp_ms < timestamp_ms:
                continue
            segment = self._cold.segment(self.log_id, row)
            if segment is None:
                return self._cold.load(self, row)
            found = timestamps.first_at_or_after(iter([segment]), timestamp_ms, start_offset, upper_offset)
            if found is not None:
                return found
        return self._tail.first_at_or_after(timestamp_ms, max(start_offset, tail_start), upper_offset)

    def latest(self, start_offset: int, upper_offset: int) -> FoundTime | Missing | None:
        tail_start = self._tail_start
        best = self._tail.latest(max(start_offset, tail_start), upper_offset) if upper_offset > tail_start else None
        older = list(self._index.between(start_offset, min(upper_offset, tail_start)))
        for row in sorted(older, key=lambda row: (-row.max_timestamp_ms, row.base)):
            if best is not None and best.timestamp_ms > row.max_timestamp_ms:
                break
            segment = self._cold.segment(self.log_id, row)
            if segment is None:
                return self._cold.load(self, row)
            found = timestamps.latest(iter([segment]), start_offset, upper_offset)
            if found is not None and (
                best is None or (-found.timestamp_ms, found.offset) < (-best.timestamp_ms, best.offset)
            ):
                best = found
        return best

    def arrived(self) -> None:
        if self._listener is not None:
            self._listener.arrived()

    # Keeping and dropping

    def facts(self) -> list[SegmentFacts]:
        rows = self._index.rows
        if not rows:
            return [SegmentFacts(self._bound_end, 0, -1)]
        return [SegmentFacts(row.end, row.placement.size_bytes, row.max_timestamp_ms) for row in rows]

    def drop_front(self, count: int) -> list[SyncTask]:
        """As for files, but all may go. The rows are deleted from the database when the log's start is stored."""
        offset = self._index.rows[count - 1].end
        self._index.drop_below(offset)
        self._drop_tail(offset)
        return []

    def _drop_tail(self, offset: int) -> None:
        """Delete the tail's segments that end at or below `offset`, but not the active one."""
        passed = sum(segment.next_offset <= offset for segment in list(self._tail)[:-1])
        for removal in self._tail.drop_front(passed) if passed else ():
            removal.sync()

    def create(self) -> None:
        """Nothing: the database holds the next offset."""

    # Durability

    def sync_targets(self) -> list[SyncTask]:
        """The next round of all logs, unless another log has begun it."""
        return self._rounds.begin()

    def synced(self) -> None:
        """Nothing: a round knows its outcome itself."""

    def writeback(self, max_bytes: int) -> tuple[int, list[SyncTask]]:
        return 0, []

    def reserve(self, size_bytes: int) -> None:
        """Nothing: no flush could become cheaper."""

    def rewrite_tail(self, offset: int) -> None:
        """Nothing: a round is repeated until its outcome is known."""

    def tail_targets(self, offset: int) -> list[SyncTask]:
        return []

    def seal_targets(self) -> list[SyncTask] | None:
        return None

    def flush_indexes(self) -> bool:
        return True

    def close(self) -> None:
        """Forget what waits; a round that is under way reports to no listener."""
        self._rounds.forget(self)
        self._listener, self._closed = None, True
        self._batches, self._headers, self._cut_count = [], [], 0
        self._tail.close()
