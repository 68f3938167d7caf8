"""Opening a log again: which bytes are true, and the state of its producers folded from them (rows L2, P9).

One pass does all: from the newest usable producer snapshot on, every batch is noted in the indexes and replayed into
the producer state; above the recovery point its checksum is verified, too, and the first bad batch ends the log.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.epochs import LeaderEpochs
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
    offset_in_name,
)
from fencepost.broker.log.segments import Segments
from fencepost.broker.log.snapshots import SNAPSHOT_SUFFIX, decode_snapshot, snapshot_offsets
from fencepost.broker.log.store import CorruptLogFile, Store
from fencepost.broker.log.txn_index import AbortedTransaction
from fencepost.protocol.control_records import ControlType, control_type, read_marker
from fencepost.protocol.record_batch import HEADER_SIZE, BatchHeader, CorruptBatch, check_crc, read_header

ALL_TRUSTED = 2**63 - 1
"""Recovery point of a log that was closed in order: no checksum need be looked at."""

_LEFTOVERS = (".tmp", ".cleaned", ".swap", ".deleted")
_CHUNK_BYTES = 1 << 20

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Recovered:
    """What stands in a log directory after recovery."""

    segments: Segments
    producers: ProducerStates
    epochs: LeaderEpochs
    scanned_bytes: int
    """Bytes of batches that were walked through."""
    truncated_bytes: int
    """Bytes cut off at the end because they were no valid batches."""


def recover(store: Store, config: LogConfig, log_start_offset: int, recovery_point: int) -> Recovered:
    """Open the log in `store`, trusting what lies below `recovery_point`.

    Raises OSError, and CorruptLogFile where trusted bytes turn out not to be batches.
    """
    names = store.sizes()
    bases = _clear_leftovers(store, names)
    if not bases:
        fresh = Segments(store, [Segment(store, max(0, log_start_offset))])
        return Recovered(fresh, ProducerStates(), LeaderEpochs.load(store), 0, 0)
    segments = [Segment(store, base) for base in bases]
    for segment, successor in pairwise(segments):
        segment.next_offset = successor.base_offset
    epochs = LeaderEpochs.load(store)
    for start, producers in _starting_points(store, names, max(recovery_point, bases[0])):
        pass_ = _Pass(names, config, segments, producers, epochs, recovery_point)
        if pass_.run(max(start, bases[0])):
            _drop_snapshots_above(store, names, pass_.end_offset)
            epochs.truncate(pass_.end_offset)
            return Recovered(
                Segments(store, pass_.segments), producers, epochs, pass_.scanned_bytes, pass_.truncated_bytes
            )
    raise AssertionError("the last starting point is the log's beginning, which can not lie beyond its end")


def _clear_leftovers(store: Store, names: Mapping[str, int]) -> list[int]:
    """Delete what a crash left half done, and indexes without data; the base offsets of the segments that remain."""
    bases = sorted(base for name in names if (base := offset_in_name(name, LOG_SUFFIX)) is not None)
    known = set(bases)
    for name in names:
        orphan = any(
            (base := offset_in_name(name, suffix)) is not None and base not in known for suffix in SEGMENT_SUFFIXES
        )
        if orphan or name.endswith(_LEFTOVERS):
            store.remove(name)
    return bases


def _starting_points(store: Store, names: Mapping[str, int], limit: int) -> Iterator[tuple[int, ProducerStates]]:
    """Offsets to replay from, with the state there: the snapshots up to `limit`, newest first, then 0.

    The limit is the recovery point; but the snapshot at the log's start is good in any case, because of what the
    producers did before it there is no other trace.
    """
    for offset in reversed(snapshot_offsets(names)):
        if offset > limit:
            continue
        name = file_name(offset, SNAPSHOT_SUFFIX)
        data = store.load(name)
        if data is None:
            continue
        try:
            yield offset, ProducerStates(decode_snapshot(data, f"{store.place}/{name}"))
        except CorruptLogFile as error:
            logger.warning("producer snapshot passed over: %s", error)
            store.remove(name)
    yield 0, ProducerStates()


def _drop_snapshots_above(store: Store, names: Mapping[str, int], end_offset: int) -> None:
    for offset in snapshot_offsets(names):
        if offset > end_offset:
            store.remove(file_name(offset, SNAPSHOT_SUFFIX))


class _Pass:
    """One pass over the tail of a log."""

    def __init__(
        self,
        names: Mapping[str, int],
        config: LogConfig,
        segments: list[Segment],
        producers: ProducerStates,
        epochs: LeaderEpochs,
        recovery_point: int,
    ) -> None:
        self._names = names
        self._config = config
        self.segments = segments
        self._producers = producers
        self._epochs = epochs
        self._recovery_point = recovery_point
        # The checkpoint is written before the first batch of an epoch, and no checksum covers the batches' own field.
        self._rebuild_epochs = epochs.latest < 0
        self.end_offset = 0
        self.scanned_bytes = 0
        self.truncated_bytes = 0

    def run(self, start: int) -> bool:
        """Replay from `start` to the end; False when the log ends before `start`: an older snapshot is needed."""
        number = max(i for i, segment in enumerate(self.segments) if segment.base_offset <= start)
        for earlier in self.segments[:number]:
            self._complete_indexes(earlier)
        self.end_offset = start
        while number < len(self.segments):
            segment = self.segments[number]
            position = self._begin(segment, start)
            if position is None:
                return False
            intact = self._scan(segment, position, start)
            self.end_offset = segment.next_offset
            if not intact:
                self._drop_after(number)
            number += 1
        return self.end_offset >= start

    def _begin(self, segment: Segment, start: int) -> int | None:
        """Rewind the segment's indexes to where the scan begins, and return that position; None if it lies beyond."""
        at = max(start, segment.base_offset)
        trusted = self._recovery_point == ALL_TRUSTED
        if at == segment.base_offset or not (trusted or _indexes_plausible(segment)):
            segment.rewind(0, segment.base_offset, at)
            return 0
        try:
            segment.next_offset = ALL_TRUSTED  # unknown yet; the walk finds the end of the file
            position = segment.position_of(at)
            if position == segment.size_bytes and not self._ends_at(segment, at):
                segment.next_offset = at
                return None
        except CorruptLogFile:
            position = 0
        if position == 0:
            segment.rewind(0, segment.base_offset, at)
            return 0
        segment.rewind(position, at, at)
        segment.first_timestamp_ms = read_header(segment.file.read(0, HEADER_SIZE), whole=False).max_timestamp
        return position

    def _ends_at(self, segment: Segment, offset: int) -> bool:
        """Whether the last batch of the file ends just before `offset`."""
        steps = list(segment.walk(segment.offsets.batch_before(segment.size_bytes)))
        return bool(steps) and steps[-1].last_offset + 1 == offset

    def _scan(self, segment: Segment, position: int, replay_from: int) -> bool:
        """Note and replay the batches from `position` on; cut the file at the first that is none (then False)."""
        try:
            for at, header, data in _batches(segment, position):
                self._verify(segment, at, header, data)
                segment.note(at, header, header.base_offset, self._config.index_interval_bytes)
                if self._rebuild_epochs:
                    self._epochs.note(header.partition_leader_epoch, header.base_offset)
                if header.base_offset >= replay_from and header.producer_id >= 0:
                    replay(self._producers, segment, header, data)
                self.scanned_bytes += header.size_bytes
        except CorruptLogFile as error:
            self._cut(segment, error)
            return False
        return True

    def _verify(self, segment: Segment, at: int, header: BatchHeader, data: memoryview) -> None:
        expected = segment.next_offset
        trusted = header.next_offset <= self._recovery_point
        # No checksum covers the base offset. Only compaction leaves gaps, and never in the last segment.
        gap_allowed = trusted or segment is not self.segments[-1]
        if header.base_offset < expected or (header.base_offset > expected and not gap_allowed):
            raise CorruptLogFile(segment.file.place, at, f"base offset {header.base_offset}, not {expected}")
        if header.next_offset - segment.base_offset > 1 << 31:
            raise CorruptLogFile(
                segment.file.place, at, f"offset {header.last_offset} is too far from the segment's base"
            )
        if not trusted and not check_crc(data, 0, header):
            raise CorruptLogFile(segment.file.place, at, "the batch's CRC-32C does not match its bytes")

    def _cut(self, segment: Segment, error: CorruptLogFile) -> None:
        lost = segment.size_bytes - error.position
        logger.warning(
            "truncated %s at byte %d, offset %d: %d bytes dropped (%s)",
            segment.file.place,
            error.position,
            segment.next_offset,
            lost,
            error,
        )
        segment.file.truncate(error.position)
        self.truncated_bytes += lost

    def _drop_after(self, number: int) -> None:
        for segment in self.segments[number + 1 :]:
            logger.warning("deleted %s: it follows a truncated segment", segment.file.place)
            self.truncated_bytes += segment.size_bytes
            segment.delete()
        del self.segments[number + 1 :]

    def _complete_indexes(self, segment: Segment) -> None:
        """Make missing indexes of a trusted segment again; what is there is trusted, too."""
        names = (file_name(segment.base_offset, suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX))
        if segment.size_bytes <= self._config.index_interval_bytes or all(name in self._names for name in names):
            return
        end_offset = segment.next_offset
        segment.offsets.truncate(0)
        segment.times.truncate(0)
        segment.max_timestamp_ms = -1
        for at, header, _ in _batches(segment, 0):
            segment.note(at, header, header.base_offset, self._config.index_interval_bytes)
        segment.seal()
        segment.next_offset = end_offset


def replay(producers: ProducerStates, segment: Segment, header: BatchHeader, data: memoryview) -> None:
    """Fold one batch that stands in the log into the producer state: nothing is checked, it was when it was written.

    Raises CorruptLogFile for a control batch that can not be read.
    """
    if not header.is_control:
        producers.replay_data(header)
        return
    if not header.record_count:
        return  # compaction emptied it: its transaction is gone
    try:
        kind = control_type(data, 0, header)
        if kind is not ControlType.ABORT and kind is not ControlType.COMMIT:
            return
        marker = read_marker(data, 0, header)
    except CorruptBatch as error:
        raise CorruptLogFile(segment.file.place, segment.size_bytes, str(error)) from error
    ended = producers.commit_marker(
        header.producer_id,
        header.producer_epoch,
        marker.type is ControlType.COMMIT,
        marker.coordinator_epoch,
        header.max_timestamp,
        header.base_offset,
    )
    if ended is not None and ended.aborted:
        segment.aborted.append(
            AbortedTransaction(ended.producer_id, ended.first_offset, ended.marker_offset, ended.last_stable_offset)
        )


def _indexes_plausible(segment: Segment) -> bool:
    return segment.offsets.plausible(segment.size_bytes) and segment.times.plausible()


def _batches(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Every batch from `position` on, whole. Raises CorruptLogFile at the first bytes that can not be one."""
    size = segment.size_bytes
    while position < size:
        chunk = memoryview(segment.file.read(position, _CHUNK_BYTES))
        at = 0
        while at < len(chunk):
            header = _header_at(segment, position + at, chunk, at)
            if header is None or header.size_bytes > len(chunk) - at:
                break
            yield position + at, header, chunk[at : at + header.size_bytes]
            at += header.size_bytes
        if not at:
            yield from _large_batch(segment, position)
            at = _header_size(segment, position)
        position += at


def _header_at(segment: Segment, position: int, chunk: memoryview, at: int) -> BatchHeader | None:
    """The header at `at`; None where the chunk ends within it but the file goes on."""
    if len(chunk) - at < HEADER_SIZE and position + HEADER_SIZE <= segment.size_bytes:
        return None
    try:
        return read_header(chunk, at, whole=False)
    except CorruptBatch as error:
        raise CorruptLogFile(segment.file.place, position, str(error)) from error


def _header_size(segment: Segment, position: int) -> int:
    return read_header(segment.file.read(position, HEADER_SIZE), whole=False).size_bytes


def _large_batch(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """The one batch at `position` that is larger than a chunk."""
    header = _header_at(segment, position, memoryview(segment.file.read(position, HEADER_SIZE)), 0)
    assert header is not None, "the file reaches at least to the end of the header"
    if position + header.size_bytes > segment.size_bytes:
        raise CorruptLogFile(segment.file.place, position, f"ends within a batch of {header.size_bytes} bytes")
    yield position, header, memoryview(segment.file.read(position, header.size_bytes))
