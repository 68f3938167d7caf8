"""Opens a log: finds its valid batches, and rebuilds the state of its producers from them (rows L2, P9).

One pass does both. From the newest usable producer snapshot on, recovery adds every batch to the indexes and replays it
into the producer state. Above the recovery point it also verifies the checksum, and the first bad batch ends the log.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from fencepost.broker.log.compaction.swap import finish_swaps
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.epochs import LeaderEpochs
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.recovery.repair import Repairs, need_no_hole
from fencepost.broker.log.recovery.scanning import batches, replay
from fencepost.broker.log.recovery.seals import SEAL_SUFFIX
from fencepost.broker.log.recovery.snapshots import SNAPSHOT_SUFFIX, snapshot_offsets, starting_points
from fencepost.broker.log.storage.reserve import drop_reserve
from fencepost.broker.log.storage.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, Segment, file_name, offset_in_name
from fencepost.broker.log.storage.segments import Segments
from fencepost.broker.log.storage.store import CorruptLogFile, Store
from fencepost.protocol.batch_header import HEADER_SIZE, BatchHeader, CorruptBatch, check_crc, read_header

ALL_TRUSTED = 2**63 - 1
"""Recovery point of a log that was closed cleanly: no checksum needs to be verified."""

_LEFTOVERS = (".tmp", ".cleaned", ".swap", ".deleted")

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Recovered:
    """The content of a log directory after recovery."""

    segments: Segments
    producers: ProducerStates
    epochs: LeaderEpochs
    scanned_bytes: int
    """Bytes of scanned batches."""
    truncated_bytes: int
    """Bytes truncated at the end because they were not valid batches."""


def recover(store: Store, config: LogConfig, log_start_offset: int, recovery_point: int) -> Recovered:
    """Open the log in `store`, and trust the batches below `recovery_point`.

    Raises OSError, and CorruptLogFile if trusted bytes are not batches.
    """
    finish_swaps(store)
    names = store.sizes()
    bases = _clear_leftovers(store, names)
    if not bases:
        fresh = Segments(store, [Segment(store, max(0, log_start_offset))])
        return Recovered(fresh, ProducerStates(), LeaderEpochs.load(store), 0, 0)
    segments = [Segment(store, base) for base in bases]
    for segment, successor in pairwise(segments):
        segment.next_offset = successor.base_offset
    _drop_reserves(segments, recovery_point)
    epochs = LeaderEpochs.load(store)
    # The snapshot at the log's start is always usable: only it holds the producers' state from the deleted records.
    for start, producers in starting_points(store, names, max(recovery_point, bases[0])):
        repairs = Repairs(store, names, config, segments)
        pass_ = _Pass(repairs, config, segments, producers, epochs, recovery_point)
        if pass_.run(max(start, bases[0])):
            _need_all_trusted(store, names, pass_.end_offset, recovery_point)
            _drop_snapshots_above(store, names, pass_.end_offset)
            epochs.truncate(pass_.end_offset)
            return Recovered(
                Segments(store, pass_.segments), producers, epochs, pass_.scanned_bytes, pass_.truncated_bytes
            )
    raise AssertionError("the last starting point is the log's beginning, which cannot be beyond its end")


def _clear_leftovers(store: Store, names: Mapping[str, int]) -> list[int]:
    """Delete unfinished files of a crash, and indexes without data. Returns the base offsets of the segments."""
    bases = sorted(base for name in names if (base := offset_in_name(name, LOG_SUFFIX)) is not None)
    known = set(bases)
    for name in names:
        orphan = any(
            (base := offset_in_name(name, suffix)) is not None and base not in known for suffix in SEGMENT_SUFFIXES
        )
        if orphan or name.endswith(_LEFTOVERS):
            store.remove(name)
    return bases


def _drop_reserves(segments: list[Segment], recovery_point: int) -> None:
    """Remove the reserved space that a crash left after the batches of the last file and of those closed just before.

    A segment that ends at the recovery point may have been closed when it was durable. The next flush makes the removal
    of its reserved space durable.
    """
    for segment in segments:
        if (segment is segments[-1] or segment.next_offset >= recovery_point) and (dropped := drop_reserve(segment)):
            logger.info("%s: %d reserved bytes were never used", segment.file.place, dropped)


def _need_all_trusted(store: Store, names: Mapping[str, int], end_offset: int, recovery_point: int) -> None:
    """Raises CorruptLogFile if the log ends below its durable offset: the end of its last file is missing."""
    known = max(snapshot_offsets(names), default=0) if recovery_point == ALL_TRUSTED else recovery_point
    need_durable(store, end_offset, known)


def need_durable(store: Store, end_offset: int, durable_offset: int) -> None:
    """Raises CorruptLogFile if the log ends at `end_offset`, but was durable up to `durable_offset`."""
    if end_offset < durable_offset:
        why = f"ends at offset {end_offset}, but everything below {durable_offset} was durable"
        raise CorruptLogFile(store.place, 0, why)


def need_start(store: Store, first_offset: int, log_start_offset: int) -> None:
    """Raises CorruptLogFile if the log begins at `first_offset`, but nothing above `log_start_offset` was deleted."""
    if first_offset > log_start_offset:
        why = f"the first segment is missing: the log begins at offset {first_offset}, but"
        raise CorruptLogFile(store.place, 0, f"{why} records from {log_start_offset} on were kept")


def _drop_snapshots_above(store: Store, names: Mapping[str, int], end_offset: int) -> None:
    for offset in snapshot_offsets(names):
        if offset > end_offset:
            store.remove(file_name(offset, SNAPSHOT_SUFFIX))


class _Pass:
    """One pass over the tail of a log."""

    def __init__(
        self,
        repairs: Repairs,
        config: LogConfig,
        segments: list[Segment],
        producers: ProducerStates,
        epochs: LeaderEpochs,
        recovery_point: int,
    ) -> None:
        self._repairs = repairs
        self._config = config
        self.segments = segments
        self._producers = producers
        self._epochs = epochs
        self._recovery_point = recovery_point
        # The checkpoint is written before the first batch of an epoch. No checksum covers the epoch in the batches.
        self._rebuild_epochs = epochs.latest < 0
        self.end_offset = 0
        self.scanned_bytes = 0
        self.truncated_bytes = 0
        self._met_gap = False

    def run(self, start: int) -> bool:
        """Replay from `start` to the end. Returns False if the log ends before `start`: use an older snapshot."""
        number = max(i for i, segment in enumerate(self.segments) if segment.base_offset <= start)
        for earlier in self.segments[:number]:
            self._repairs.trust(earlier)
        self.end_offset = start
        while number < len(self.segments):
            segment = self.segments[number]
            position = self._begin(segment, start)
            if position is None:
                return False
            self._met_gap = False
            intact = self._scan(segment, position, start)
            self.end_offset = segment.next_offset
            if number + 1 < len(self.segments) and (not intact or self._ends_early(number)):
                self._drop_after(number)
                self._add_successor(segment)
            number += 1
            if number < len(self.segments):
                segment.next_offset = max(segment.next_offset, self.segments[number].base_offset)
                segment.seal()
        return self.end_offset >= start

    def _begin(self, segment: Segment, start: int) -> int | None:
        """Rewind the segment's indexes to where the scan begins, and return that position; None if it is beyond."""
        at = max(start, segment.base_offset)
        if at == segment.base_offset:
            segment.rewind(0, at, at)
            return 0
        seal = self._repairs.seal_of(segment)
        if seal is None or seal.end_offset < at or not segment.aborted.begins_as(seal.aborted):
            return None  # the aborts before `at` are unknown: an older snapshot is needed to rebuild them
        segment.aborted.drop_unsealed(seal.aborted)
        try:
            if not (segment.offsets.begins_as(seal.offsets) and segment.times.begins_as(seal.times)):
                raise CorruptLogFile(segment.offsets.file.place, 0, "the segment's indexes do not match their seal")
            segment.offsets.drop_unsealed(seal.offsets)
            segment.times.drop_unsealed(seal.times)
            segment.next_offset = ALL_TRUSTED  # still unknown: the walk goes to the end of the file
            position = segment.position_of(at)
            if position == segment.size_bytes and not self._ends_at(segment, at):
                segment.next_offset = at
                return None
            first = read_header(segment.file.read(0, HEADER_SIZE), whole=False)
        except (CorruptLogFile, CorruptBatch) as error:
            logger.warning("indexes are rebuilt from the batches: %s", error)
            position = 0
        if position == 0:
            segment.rewind(0, segment.base_offset, at)
            return 0
        segment.rewind(position, at, at)
        segment.first_timestamp_ms = first.max_timestamp
        return position

    def _ends_at(self, segment: Segment, offset: int) -> bool:
        steps = list(segment.walk(segment.offsets.batch_before(segment.size_bytes)))
        return bool(steps) and steps[-1].last_offset + 1 == offset

    def _scan(self, segment: Segment, position: int, replay_from: int) -> bool:
        """Index and replay the batches from `position` on. Returns False after truncation at the first bad batch.

        Below the recovery point it truncates nothing, because the records were acknowledged, and raises the error.
        """
        try:
            for at, header, data in batches(segment, position):
                self._verify(segment, at, header, data)
                segment.note(at, header, header.base_offset, self._config.index_interval_bytes)
                if self._rebuild_epochs:
                    self._epochs.note(header.partition_leader_epoch, header.base_offset)
                if header.base_offset >= replay_from and header.producer_id >= 0:
                    aborted = replay(self._producers, segment.file.place, at, header, data)
                    if aborted is not None:
                        segment.aborted.append(aborted)
                self.scanned_bytes += header.size_bytes
        except CorruptLogFile as error:
            if segment.next_offset < self._recovery_point:
                raise
            self._cut(segment, error)
            return False
        return True

    def _verify(self, segment: Segment, at: int, header: BatchHeader, data: memoryview) -> None:
        expected = segment.next_offset
        trusted = header.next_offset <= self._recovery_point
        # No checksum covers the base offset. Only compaction leaves gaps, but never in the last segment.
        gap_allowed = trusted or segment is not self.segments[-1]
        if header.base_offset < expected or (header.base_offset > expected and not gap_allowed):
            raise CorruptLogFile(segment.file.place, at, f"base offset {header.base_offset}, not {expected}")
        self._met_gap = self._met_gap or header.base_offset > expected
        if header.next_offset - segment.base_offset > 1 << 31:
            raise CorruptLogFile(
                segment.file.place, at, f"offset {header.last_offset} is too far from the segment's base"
            )
        if not trusted and not check_crc(data, 0, header):
            raise CorruptLogFile(segment.file.place, at, "the batch's CRC-32C does not match its bytes")

    def _ends_early(self, number: int) -> bool:
        """Whether batches are missing between this segment and the next, because they were not durable.

        A power cut can remove the end of a file at a batch boundary, and leave the next file. Compaction also leaves
        gaps, but in segments of a compacted log, or with a seal that was durable before them and includes them.

        Raises CorruptLogFile if durable batches are missing there: a whole segment, because this one is as it was.
        """
        segment = self.segments[number]
        successor = self.segments[number + 1].base_offset
        if segment.next_offset == successor:
            return False
        seal = self._repairs.seal_of(segment)
        if segment.next_offset < self._recovery_point:
            if seal is not None and seal.log_bytes == segment.size_bytes:
                need_no_hole(segment, seal.end_offset, successor)
            elif not self._config.compacted:
                need_no_hole(segment, segment.next_offset, successor)
            return False
        if seal is None:
            return not self._config.compacted or self._repairs.seal_is_torn(segment)
        return (seal.end_offset, seal.log_bytes) != (successor, segment.size_bytes)

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
        segment.store.remove(segment.names[SEAL_SUFFIX])  # it covers the truncated bytes
        segment.file.truncate(error.position)
        self.truncated_bytes += lost

    def _add_successor(self, segment: Segment) -> None:
        """Add an empty segment after a closed one that became the last. Otherwise the next start would reject the gaps
        that compaction left in it.
        """
        if self._met_gap:
            following = Segment(segment.store, segment.next_offset)
            following.file.create()
            self.segments.append(following)

    def _drop_after(self, number: int) -> None:
        for segment in self.segments[number + 1 :]:
            logger.warning("deleted %s: it follows a truncated segment", segment.file.place)
            self.truncated_bytes += segment.size_bytes
            segment.delete()
        del self.segments[number + 1 :]
