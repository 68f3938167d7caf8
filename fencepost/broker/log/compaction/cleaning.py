"""One compaction of one log, as a sequence of small steps that the caller schedules (rows L4 to L6).

It first reads the dirty part and maps each key to its last offset. Then it copies all segments, group by group, without
superseded, aborted and expired records; each copy replaces its group. Between two steps the log may be appended to,
read, rolled, trimmed at its start and deleted.
"""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from fencepost.broker.log.compaction.batch_cleaner import BatchCleaner
from fencepost.broker.log.compaction.cleanable import CleanableRange, grouped
from fencepost.broker.log.compaction.cleaned_transactions import AbortedAhead, CleanedTransactions
from fencepost.broker.log.compaction.offset_map import SLOT_BYTES, OffsetMap
from fencepost.broker.log.compaction.record_work import Offload, Steps, checked, offloaded, records_of
from fencepost.broker.log.compaction.swap import CLEANED, swap_in
from fencepost.broker.log.durability.upkeep import sync_all
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.recovery.scanning import batches
from fencepost.broker.log.storage.segment import SEGMENT_SUFFIXES, TXN_INDEX_SUFFIX, Segment, file_name
from fencepost.broker.log.storage.segments import Segments
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.batch_header import BatchHeader, CorruptBatch, UnreadableBatch
from fencepost.protocol.control_records import control_type

UNITS_PER_STEP = 128
"""About as many records are processed before other tasks run: about a millisecond."""
CHUNK_BYTES = 64 << 10
SYNC_EVERY_BYTES = 8 << 20
"""The copy is synced in portions of this size, so that no flush of an append waits behind a whole segment."""
_UNITS_PER_BATCH = 4
_BYTES_PER_UNIT = 4096
_MAX_POSITION = 2**31 - 1
_MAP_BYTES_MIN = 1 << 10
_LOAD_FACTOR_SLACK = 2


class CleaningInterrupted(Exception):
    """The log changed during the compaction: segments were dropped or the log was deleted. Cancelling loses nothing."""


class CleaningLimits(NamedTuple):
    """The memory of one compaction: `map_bytes` for the keys, of which the share `load_factor` is used."""

    map_bytes: int = 128 << 20
    load_factor: float = 0.9

    def shared_by(self, compactions: int) -> "CleaningLimits":
        """The limits of each of `compactions` that run at a time."""
        return self._replace(map_bytes=max(_MAP_BYTES_MIN, self.map_bytes // compactions))


@dataclass(slots=True)
class CleaningStats:
    read_bytes: int = 0
    written_bytes: int = 0
    records_read: int = 0
    records_kept: int = 0
    keyless: int = 0
    """Removed records without a key, which were written before the topic was compacted."""
    map_utilization: float = 0.0


class Cleaning:
    """A compaction of `log` within `range_`; the caller iterates over `run`."""

    def __init__(self, log: PartitionLog, range_: CleanableRange, limits: CleaningLimits, now_ms: int) -> None:
        assert isinstance(log.segments, Segments), "only logs stored as segments can be compacted"
        self._log = log
        self._segments = log.segments
        self._range = range_
        self._now_ms = now_ms
        self._units = 0
        self._bytes = 0
        self._batches: BatchCleaner | None = None
        self._write = bytearray()
        span = max(1, range_.upper_offset - range_.first_dirty_offset)
        slots = min(limits.map_bytes // SLOT_BYTES, _LOAD_FACTOR_SLACK * span + 2)
        self._map = OffsetMap(slots, limits.load_factor)
        self.stats = CleaningStats()
        self.cleaned_to = range_.first_dirty_offset
        """The first dirty offset after this compaction."""

    def run(self) -> Steps[None]:
        """The steps. A number is the count of bytes that a step read and wrote. The caller runs an Offload in a thread.

        Raises CleaningInterrupted, CorruptLogFile and OSError; segments swapped in before that stay. CorruptLogFile
        also if the records of a batch cannot be unpacked: without their keys the cleaner cannot know which other
        records they supersede. Kafka's cleaner stops there, too.
        """
        try:
            yield from self._fill_map()
            self.stats.map_utilization = self._map.utilization
            end_offset = self._map_end + 1
            whole = [segment for segment in self._segments if segment.base_offset < end_offset]
            transactions = CleanedTransactions(AbortedAhead(list(self._segments), 0))
            self._batches = BatchCleaner(
                self._log.producers,
                transactions,
                self._map,
                self._map_end,
                self._now_ms,
                self._log.config.delete_retention_ms,
                self._log.config.message_max_decompressed_bytes,
                self.stats,
            )
            for group in grouped(whole, self._log.config):
                yield from self._clean(group, transactions)
            self.cleaned_to = end_offset
        finally:
            self._map.close()

    # The offset map

    def _fill_map(self) -> Steps[None]:
        """Map each key to its last offset, from the first dirty offset on, until the map is full."""
        start, upper = self._range.first_dirty_offset, self._range.upper_offset
        self._map_end = upper - 1
        segments = [s for s in self._segments.from_offset(start) if s.base_offset < upper]
        transactions = CleanedTransactions(AbortedAhead(list(self._segments.from_offset(start)), start))
        for segment in segments:
            for position, header, data in batches(segment, segment.position_of(start), CHUNK_BYTES):
                self._check_in_log(segment)
                for _ in transactions.aborted.reach(header.next_offset):
                    yield 0
                if header.is_control:
                    transactions.marker(header, _readable(segment, position, header, data))
                elif not transactions.data(header) and header.last_offset >= start and header.record_count:
                    full_at = yield from self._map_batch(segment, position, header, data, start)
                    if full_at is not None:
                        self._map_end = full_at - 1
                        return
                yield from self._worked(_UNITS_PER_BATCH, header.size_bytes)

    def _map_batch(
        self, segment: Segment, position: int, header: BatchHeader, data: memoryview, start: int
    ) -> Steps[int | None]:
        """Map the keys of one batch. Returns the offset of the first record that did not fit, or None."""
        data = checked(segment, position, header, data)
        try:
            body = yield from records_of(header, data, self._log.config.message_max_decompressed_bytes)
            for number, record in enumerate(body.records(), 1):
                if record.key is not None and record.offset >= start and not self._map.put(record.key, record.offset):
                    return record.offset
                if not number % UNITS_PER_STEP:
                    yield 0
        except UnreadableBatch as error:  # the checksum matches, so the producer sent it like this
            raise CorruptLogFile(segment.file.place, position, str(error)) from error
        self._units += header.record_count % UNITS_PER_STEP
        return None

    # Copying

    def _clean(self, group: Sequence[Segment], transactions: CleanedTransactions) -> Steps[None]:
        """Copy a group without the removed records, and replace the group by the copy."""
        log, store = self._log, self._log.store
        base_offset = group[0].base_offset
        for producer_ids in log.snapshots.open_at(base_offset):
            transactions.open_in_snapshot(producer_ids)
            yield 0
        for suffix in SEGMENT_SUFFIXES:
            store.remove(file_name(base_offset, suffix) + CLEANED)
        copy = Segment(store, base_offset, ending=CLEANED)
        swapped = False
        try:
            yield from self._copy(group, copy, transactions)
            yield from self._finish(group, copy)
            transactions.aborted.leave(group)
            swap = swap_in(self._segments, group, copy, log.later)
            for sync_targets in swap:
                swapped = True
                yield from offloaded(partial(sync_all, sync_targets))
                if log.disowned:
                    raise CleaningInterrupted
            if not swapped:
                raise CleaningInterrupted
        finally:
            if not swapped and not log.disowned:
                copy.delete()

    def _copy(self, group: Sequence[Segment], copy: Segment, transactions: CleanedTransactions) -> Steps[None]:
        assert self._batches is not None
        self._write.clear()
        synced_bytes = 0
        for segment in group:
            for position, header, data in batches(segment, 0, CHUNK_BYTES):
                self._check_in_log(segment)
                for _ in transactions.aborted.reach(header.next_offset):
                    yield 0
                is_last = segment is group[-1] and position + header.size_bytes == segment.size_bytes
                data = _readable(segment, position, header, data)
                self.stats.read_bytes += header.size_bytes
                try:
                    kept = yield from self._batches.clean(header, data, is_last, copy.aborted)
                except UnreadableBatch as error:
                    raise CorruptLogFile(segment.file.place, position, str(error)) from error
                self._units += header.record_count % UNITS_PER_STEP
                written = 0 if kept is None else self._append(copy, *kept)
                yield from self._worked(_UNITS_PER_BATCH, header.size_bytes + written)
                if copy.size_bytes - synced_bytes >= SYNC_EVERY_BYTES:
                    synced_bytes = copy.size_bytes
                    target = copy.file.sync_target()
                    yield from offloaded(partial(sync_all, [] if target is None else [target]))
        self._flush(copy)

    def _append(self, copy: Segment, header: BatchHeader, batch: bytes | bytearray | memoryview) -> int:
        position = copy.size_bytes + len(self._write)
        if position > _MAX_POSITION:
            raise CorruptLogFile(copy.file.place, position, "delete horizons make the copy too large for an index")
        self._write += batch
        copy.note(position, header, header.base_offset, self._log.config.index_interval_bytes)
        self.stats.written_bytes += len(batch)
        if len(self._write) >= CHUNK_BYTES:
            self._flush(copy)
        return len(batch)

    def _flush(self, copy: Segment) -> None:
        if self._write:
            copy.file.write(copy.size_bytes, self._write)
            self._write.clear()

    def _finish(self, group: Sequence[Segment], copy: Segment) -> Steps[None]:
        """Make the copy durable, with everything that the swap needs.

        The active segment's file must exist, because it holds the next offset: the copy may end in a gap, and recovery
        must not truncate there. Snapshots within the group are deleted: their open transactions may have lost their
        markers. Snapshots at segment bases stay for retention, and the markers that they need stay, too.
        """
        self._check_in_log(group[-1])
        copy.next_offset = max(copy.next_offset, group[-1].next_offset)
        if not copy.seal():
            raise OSError(errno.ENOSPC, "the indexes of a compacted segment cannot be written", copy.file.place)
        copy.offsets.file.create()
        copy.times.file.create()
        if file_name(copy.base_offset, TXN_INDEX_SUFFIX) in self._log.store.sizes():
            copy.aborted.file.create()
        self._segments.create()
        passed = self._log.snapshots.remove_between(copy.base_offset, copy.next_offset)
        targets = [*copy.sync_targets(), *self._log.store.entry_targets(), *passed]
        yield from offloaded(partial(sync_all, targets))
        self._check_in_log(group[-1])

    # Scheduling

    def _check_in_log(self, segment: Segment) -> None:
        """Raises CleaningInterrupted if the segment is no longer part of the log."""
        log = self._log
        if not log.writable or self._segments.first_offset > segment.base_offset:
            raise CleaningInterrupted

    def _worked(self, units: int, size_bytes: int) -> Steps[None]:
        self._units += units + size_bytes // _BYTES_PER_UNIT
        self._bytes += size_bytes
        if self._units >= UNITS_PER_STEP:
            done = self._bytes
            self._units = self._bytes = 0
            yield done


def drive(steps: Steps[None], rest: Callable[[int], None] = lambda total: None) -> int:
    """Run all steps in this thread. Returns the bytes read and written; `rest` is called with them after each step."""
    total = 0
    for work in steps:
        if isinstance(work, Offload):
            work.run()
        else:
            total += work
        rest(total)
    return total


def _readable(segment: Segment, position: int, header: BatchHeader, data: memoryview) -> memoryview:
    """A batch whose CRC matches and, if it is a control batch, whose record can be read. Raises CorruptLogFile."""
    checked(segment, position, header, data)
    if header.is_control and header.record_count:
        try:
            control_type(data, 0, header)
        except CorruptBatch as error:
            raise CorruptLogFile(segment.file.place, position, str(error)) from error
    return data
