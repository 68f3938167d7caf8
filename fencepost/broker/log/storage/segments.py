"""A log stored as Kafka's segments, the last of which is active: the `StoredLog` over any `Store` of files."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.log_store import Conflict, Extent, FoundTime, LateLog
from fencepost.broker.log.retention import SegmentFacts
from fencepost.broker.log.storage import timestamps
from fencepost.broker.log.storage.resumed_reads import ResumedReads
from fencepost.broker.log.storage.segment import Segment
from fencepost.broker.log.storage.store import Bytes, Piece, Staging, Store, SyncTask
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.batch_header import BatchHeader

_base_offset = attrgetter("base_offset")


class Segments:
    """The segments of one log, by rising base offset; never empty."""

    def __init__(self, store: Store, segments: list[Segment]) -> None:
        assert segments, "a log has at least its active segment"
        self.keeps_producers = False
        self.late: LateLog | None = None
        """Only this broker writes these files: an append is bound when it returns."""
        self.store = store
        self._segments = segments
        self._found = segments[:-1]
        """Segments of an earlier run that were not synced yet: there may be thousands."""
        self._unsynced: list[Segment] = []
        """Segments that were closed since the last `sync_targets` whose tasks are done."""
        self._being_synced: set[Segment] = set()
        """Of both, those that the tasks of the last `sync_targets` make durable."""
        self.active = segments[-1]
        self.unflushed = False
        """Whether the last `sync_targets` left index entries of sealed segments in memory: the disk was full."""
        self._sealed_bytes = sum(segment.size_bytes for segment in segments[:-1])
        self.end_offset = self.active.next_offset
        """The offset that the next record will get."""
        self.written_bytes = self.active.file.size_bytes
        """A count of bytes that grows with every append and never falls; its first value is arbitrary."""
        self.written_batches = 0
        self.closed_since_sync = 0
        self._found_end = self.end_offset
        self._resumed = ResumedReads()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first_offset(self) -> int:
        return self._segments[0].base_offset

    @property
    def size_bytes(self) -> int:
        return self._sealed_bytes + self.active.file.size_bytes

    def must_roll(self, size_bytes: int, header: BatchHeader, now_ms: int, config: LogConfig) -> bool:
        return self.active.must_roll(size_bytes, header, now_ms, config)

    def append(self, expected_offset: int, batch: Bytes, header: BatchHeader, config: LogConfig) -> Conflict | None:
        if self.end_offset != expected_offset:
            return Conflict(expected_offset, self.end_offset)
        self.active.append(batch, header, config.index_interval_bytes)
        self.end_offset = self.active.next_offset
        self.written_bytes += len(batch)
        self.written_batches += 1
        return None

    def skip_to(self, offset: int) -> None:
        """The next record gets `offset`: compaction has removed the batches before it."""
        self.end_offset = self.active.next_offset = offset

    def stage(self, head: Bytes, batch: Bytes) -> Staging | None:
        return self.active.file.stage(head, batch)

    def unstage(self, staged: Staging) -> None:
        self.active.file.unstage(staged)

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        self.active.aborted.append(aborted)

    def roll(self, now_ms: int) -> None:
        """Close the active segment and begin the next one at the end offset; its first append creates its files."""
        old = self.active
        following = Segment(self.store, old.next_offset, now_ms)  # first, for it may raise OSError
        old.seal()
        self._sealed_bytes += old.size_bytes
        self._unsynced.append(old)
        self.closed_since_sync += 1
        self.active = following
        self._segments.append(following)

    # Reading

    def index_of(self, offset: int) -> int:
        """Index of the segment that holds `offset` (of the first one for offsets before the log)."""
        return max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """The segments from the one that holds `offset` on."""
        active = self.active
        if offset >= active.base_offset:
            yield active
            return
        for number in range(self.index_of(offset), len(self._segments)):
            yield self._segments[number]

    def read(self, offset: int, upper_offset: int, max_bytes: int, at_least_one: bool) -> Extent:
        parts: list[Piece] = []
        size_bytes = 0
        first_offset = offset
        for segment in self.from_offset(offset):
            if segment.base_offset >= upper_offset or size_bytes >= max_bytes > 0:
                break
            part = segment.slice(offset, upper_offset, max_bytes - size_bytes, at_least_one and not parts)
            if part.size_bytes:
                parts.append(segment.piece(part))
                size_bytes += part.size_bytes
            whole = part.end_offset >= segment.next_offset
            offset = max(offset, part.end_offset)
            if not whole:
                break
        if parts and (first_offset < self._found_end or first_offset < self.active.base_offset):
            self._resumed.note(self.from_offset(first_offset), first_offset, offset)
        return Extent(parts, size_bytes, offset)

    def bytes_between(self, offset: int, upper_offset: int) -> int:
        total = 0
        for segment in self.from_offset(offset):
            if segment.base_offset >= upper_offset:
                break
            total += segment.position_of(upper_offset) - segment.position_of(offset)
        return total

    def aborted_between(self, offset: int, upper_offset: int) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        for segment in self.from_offset(offset):
            if len(segment.aborted):
                entries, complete = segment.aborted.collect(offset, upper_offset)
                found += entries
                if complete:
                    break
        found.sort(key=attrgetter("first_offset"))
        return found

    def first_at_or_after(self, timestamp_ms: int, start_offset: int, upper_offset: int) -> FoundTime | None:
        return timestamps.first_at_or_after(self.from_offset(start_offset), timestamp_ms, start_offset, upper_offset)

    def latest(self, start_offset: int, upper_offset: int) -> FoundTime | None:
        return timestamps.latest(self.from_offset(start_offset), start_offset, upper_offset)

    def facts(self) -> list[SegmentFacts]:
        return [SegmentFacts(s.next_offset, s.size_bytes, s.last_time_ms) for s in self._segments]

    # Durability and deletion

    @property
    def is_deleted(self) -> bool:
        return self.active.file.is_deleted()

    @property
    def has_unsynced_closed(self) -> bool:
        return bool(self._unsynced or self._found)

    def sync_targets(self) -> list[SyncTask]:
        """The tasks that make all batches so far durable, and once the indexes of each closed segment."""
        self.unflushed = False
        sync_targets = self._closed_targets() if self._unsynced or self._found else []
        target = self.active.file.sync_target()
        if target is not None:
            sync_targets.append(target)
        self.closed_since_sync = 0
        return sync_targets + self.store.entry_targets()

    def _closed_targets(self) -> list[SyncTask]:
        kept = [segment for segment in (*self._unsynced, *self._found) if not segment.flush_indexes()]
        self.unflushed = bool(kept)
        sync_targets = [target for segment in self._unsynced for target in segment.sync_targets()]
        sync_targets += self.store.late_targets(name for segment in self._found for name in segment.names.values())
        self._being_synced = {segment for segment in (*self._unsynced, *self._found) if segment not in kept}
        return sync_targets

    def synced(self) -> None:
        """See `StoredLog`."""
        if self._being_synced:
            self._unsynced = [segment for segment in self._unsynced if segment not in self._being_synced]
            self._found = [segment for segment in self._found if segment not in self._being_synced]
            self._being_synced = set()

    def writeback(self, max_bytes: int) -> tuple[int, list[SyncTask]]:
        taken, sync_targets = 0, list[SyncTask]()
        for segment in (*self._found, *self._unsynced, self.active):
            size_bytes, target = segment.file.writeback(max_bytes - taken)
            taken += size_bytes
            if target is not None:
                sync_targets.append(target)
        return taken, sync_targets

    def reserve(self, size_bytes: int) -> None:
        self.active.file.reserve(size_bytes)

    def rewrite_tail(self, offset: int) -> None:
        """Write the batches from `offset` on again, see `StoredLog`. Raises OSError."""
        for segment in self._segments:
            if segment.next_offset > offset:
                segment.rewrite_tail(max(offset, segment.base_offset))

    def tail_targets(self, offset: int) -> list[SyncTask]:
        return [
            target for segment in self._segments if segment.next_offset > offset for target in segment.sync_targets()
        ]

    def flush_indexes(self) -> bool:
        return not [segment for segment in self._segments if not segment.flush_indexes()]

    def create(self) -> None:
        """Create the active segment's file even if it is empty. Raises OSError."""
        self.active.file.create()

    def seal_targets(self) -> list[SyncTask] | None:
        """Complete the active segment's indexes. Returns the tasks to sync, or None if the disk is full."""
        return self.active.sync_targets() if self.active.seal() else None

    def drop_front(self, count: int) -> list[SyncTask]:
        """Remove the oldest `count` segments. Returns tasks that delete their files when synced. Raises OSError."""
        assert count < len(self._segments), "the active segment stays"
        removals: list[SyncTask] = []
        for segment in self._segments[:count]:
            removals += segment.removals()
            self._segments.remove(segment)
            self._sealed_bytes -= segment.size_bytes
            for waiting in (self._found, self._unsynced):
                if segment in waiting:
                    waiting.remove(segment)
        return removals

    def replace(self, old: Sequence[Segment], new: Segment) -> Conflict | None:
        """Replace `old` by `new`, their durable compacted copy.

        Returns a Conflict if retention has removed some of `old`; then nothing has changed.
        """
        first = old[0].base_offset
        at = self.index_of(first)
        if self._segments[at : at + len(old)] != list(old):
            return Conflict(first, self._segments[at].base_offset)
        assert self.active not in old, "the active segment is never compacted"
        self._segments[at : at + len(old)] = [new]
        self._sealed_bytes += new.size_bytes - sum(segment.size_bytes for segment in old)
        self._found = [segment for segment in self._found if segment not in old]
        self._unsynced = [segment for segment in self._unsynced if segment not in old]
        for segment in old:
            segment.close()
        return None

    def close(self) -> None:
        for segment in self._segments:
            segment.close()
