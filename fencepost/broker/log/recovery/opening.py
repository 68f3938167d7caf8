"""Opening a log again: which bytes are true, and the state of its producers folded from them (rows L2, P9).

One pass does all: from the newest usable producer snapshot on, every batch is noted in the indexes and replayed into
the producer state; above the recovery point its checksum is verified, too, and the first bad batch ends the log.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from fencepost.broker.log.compaction.swap import finish_swaps
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.epochs import LeaderEpochs
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.recovery.repair import Repairs
from fencepost.broker.log.recovery.scanning import batches, replay
from fencepost.broker.log.recovery.seals import SEAL_SUFFIX
from fencepost.broker.log.recovery.snapshots import SNAPSHOT_SUFFIX, snapshot_offsets, starting_points
from fencepost.broker.log.storage.reserve import drop_reserve
from fencepost.broker.log.storage.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, Segment, file_name, offset_in_name
from fencepost.broker.log.storage.segments import Segments
from fencepost.broker.log.storage.store import CorruptLogFile, Store
from fencepost.protocol.batch_header import HEADER_SIZE, BatchHeader, CorruptBatch, check_crc, read_header

ALL_TRUSTED = 2**63 - 1
"""Recovery point of a log that was closed in order: no checksum need be looked at."""

_LEFTOVERS = (".tmp", ".cleaned", ".swap", ".deleted")

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
    # The snapshot at the log's start is good in any case: what the producers did before it has left no other trace.
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
    raise AssertionError("the last starting point is the log's beginning, which cannot lie beyond its end")


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


def _drop_reserves(segments: list[Segment], recovery_point: int) -> None:
    """Take away the room that a crash has left behind the batches of the last file, and of those closed just before.

    One that ends just at the recovery point may have been closed when all of it was durable: that its room was cut off
    then is made durable by the next flush, which comes with the next batch.
    """
    for segment in segments:
        if (segment is segments[-1] or segment.next_offset >= recovery_point) and (dropped := drop_reserve(segment)):
            logger.info("%s: %d reserved bytes were never used", segment.file.place, dropped)


def _need_all_trusted(store: Store, names: Mapping[str, int], end_offset: int, recovery_point: int) -> None:
    """Raises CorruptLogFile where the log ends before what was durable: the end of its last file is missing."""
    known = max(snapshot_offsets(names), default=0) if recovery_point == ALL_TRUSTED else recovery_point
    need_durable(store, end_offset, known)


def need_durable(store: Store, end_offset: int, durable_offset: int) -> None:
    """Raises CorruptLogFile where a log that ends at `end_offset` once was durable further on."""
    if end_offset < durable_offset:
        why = f"ends at offset {end_offset}, but everything below {durable_offset} was durable"
        raise CorruptLogFile(store.place, 0, why)


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
        # The checkpoint is written before the first batch of an epoch, and no checksum covers the batches' own field.
        self._rebuild_epochs = epochs.latest < 0
        self.end_offset = 0
        self.scanned_bytes = 0
        self.truncated_bytes = 0
        self._met_gap = False

    def run(self, start: int) -> bool:
        """Replay from `start` to the end; False when the log ends before `start`: an older snapshot is needed."""
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
                self._go_on_after(segment)
            number += 1
            if number < len(self.segments):
                segment.next_offset = max(segment.next_offset, self.segments[number].base_offset)
                segment.seal()
        return self.end_offset >= start

    def _begin(self, segment: Segment, start: int) -> int | None:
        """Rewind the segment's indexes to where the scan begins, and return that position; None if it lies beyond."""
        at = max(start, segment.base_offset)
        if at == segment.base_offset:
            segment.rewind(0, at, at)
            return 0
        seal = self._repairs.seal_of(segment)
        if seal is None or seal.end_offset < at or not segment.aborted.begins_as(seal.aborted):
            return None  # which aborts came before `at` is not known: an older snapshot, and all of them are noted anew
        segment.aborted.drop_unsealed(seal.aborted)
        try:
            if not (segment.offsets.begins_as(seal.offsets) and segment.times.begins_as(seal.times)):
                raise CorruptLogFile(segment.offsets.file.place, 0, "the segment's indexes do not match their seal")
            segment.offsets.drop_unsealed(seal.offsets)
            segment.times.drop_unsealed(seal.times)
            segment.next_offset = ALL_TRUSTED  # unknown yet; the walk finds the end of the file
            position = segment.position_of(at)
            if position == segment.size_bytes and not self._ends_at(segment, at):
                segment.next_offset = at
                return None
            first = read_header(segment.file.read(0, HEADER_SIZE), whole=False)
        except (CorruptLogFile, CorruptBatch) as error:
            logger.warning("indexes are made again: %s", error)
            position = 0
        if position == 0:
            segment.rewind(0, segment.base_offset, at)
            return 0
        segment.rewind(position, at, at)
        segment.first_timestamp_ms = first.max_timestamp
        return position

    def _ends_at(self, segment: Segment, offset: int) -> bool:
        """Whether the last batch of the file ends just before `offset`."""
        steps = list(segment.walk(segment.offsets.batch_before(segment.size_bytes)))
        return bool(steps) and steps[-1].last_offset + 1 == offset

    def _scan(self, segment: Segment, position: int, replay_from: int) -> bool:
        """Note and replay the batches from `position` on; cut the file at the first that is none (then False).

        Below the recovery point nothing is cut: what was acknowledged is not thrown away, the error goes to the caller.
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
        # No checksum covers the base offset. Only compaction leaves gaps, and never in the last segment.
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
        """Whether batches are missing between this segment and the next, lost with all that was not durable yet.

        A power cut can take the end of a file at the border of a batch and leave the next file. Compaction leaves gaps,
        too, but below the recovery point, or with a seal that was durable before them and knows of them.
        """
        segment = self.segments[number]
        if number + 1 == len(self.segments) or segment.next_offset < self._recovery_point:
            return False
        successor = self.segments[number + 1].base_offset
        if segment.next_offset == successor:
            return False
        seal = self._repairs.seal_of(segment)
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
        segment.store.remove(segment.names[SEAL_SUFFIX])  # it speaks of what goes now
        segment.file.truncate(error.position)
        self.truncated_bytes += lost

    def _go_on_after(self, segment: Segment) -> None:
        """A closed segment is the last one now. Gaps that compaction left in it are believed at the next start only
        where a segment follows: so one does.
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
