"""Checks one partition's directory: each of its batches, and all other files against the batches.

It replays the batches from the log's beginning, or from the snapshot there, by the rules of recovery. It compares the
indexes and snapshots with the batches, and never relies on them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from fencepost.broker.log.compaction.swap import SWAP
from fencepost.broker.log.epochs import LeaderEpochs
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.recovery.opening import ALL_TRUSTED
from fencepost.broker.log.recovery.scanning import batches, replay
from fencepost.broker.log.recovery.snapshots import SNAPSHOT_SUFFIX
from fencepost.broker.log.storage.checkpoints import LEADER_EPOCHS, decode_epochs, encode_epochs
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.reserve import is_room
from fencepost.broker.log.storage.segment import file_name
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.log.verify.files import ReadSegment, file_names, load, segment_bases, swapped_bases
from fencepost.broker.log.verify.indexes import IndexCheck, Place, SegmentFacts, Wanted
from fencepost.broker.log.verify.report import Level, PartitionFacts, Report
from fencepost.broker.log.verify.snapshots import SnapshotCheck
from fencepost.protocol.batch_header import BatchHeader, UnreadableBatch, check_crc
from fencepost.protocol.record_check import RecordRules, check_records
from fencepost.protocol.records import Record, decode_unpacked, unpack_records

RESTORE = "Acknowledged records are damaged: restore the file from a backup"
ROOM = "The broker reserves space ahead of its flushes, and removes it when it closes the log or at the next start"
TORN = "A crash leaves this: it was never acknowledged, and the next start truncates it"

RecordCheck = Callable[[Record], str | None]
"""Returns what is wrong with the content of a record of an internal topic, or None."""


@dataclass(frozen=True, slots=True)
class Expectations:
    """What the other files of the data directory say about a partition."""

    recovery_point: int = ALL_TRUSTED
    """Every batch below it was durable; ALL_TRUSTED after a clean shutdown."""
    known_end: int = 0
    """The log was once durable up to here."""
    log_start_offset: int = 0
    exact_start: bool = False
    """Whether the segment of the log start must exist."""
    compacted: bool = False
    """Whether closed segments may have gaps."""
    shallow: bool = False
    """Check only checksums and headers, without decoding records."""
    records: RecordCheck | None = None


class PartitionCheck:
    """One walk over a partition."""

    def __init__(self, directory: Path, expected: Expectations, report: Report) -> None:
        self._directory = directory
        self._label = directory.name
        self._expected = expected
        self._report = report
        self._producers = ProducerStates()
        self._known = True
        """Whether the producers' state matches the log so far; False after a damaged batch."""
        self._begun = False
        self._next_offset = 0
        self._epochs = self._load_epochs()
        self._epochs_agreed = 0
        self._epochs_differed: list[tuple[str, int, BatchHeader, int]] = []

    def run(self) -> None:
        """Check everything. Raises OSError."""
        names = file_names(self._directory)
        bases = self._bases(names)
        self._snapshots = SnapshotCheck(self._directory, names, self._expected, self._report)
        if bases:
            self._next_offset = bases[0]
            self._check_start(bases[0])
        for number, base_offset in enumerate(bases):
            successor = bases[number + 1] if number + 1 < len(bases) else None
            self._begin_at(base_offset)
            self._check_segment(base_offset, successor)
        self._report_epochs()
        self._snapshots.finish(self._next_offset)
        self._check_end(bases)

    def _bases(self, names: list[str]) -> list[int]:
        """The segments of the next start: if a crash interrupted a swap, the compacted segment replaces the others."""
        self._swapped = set(swapped_bases(names))
        bases = {*segment_bases(names), *self._swapped}
        for base_offset in self._swapped:
            segment = ReadSegment(self._directory, base_offset, SWAP)
            end_offset = base_offset + 1
            try:
                for _, header, _ in batches(segment, 0):
                    end_offset = header.next_offset
            except CorruptLogFile:
                pass  # the check of the segment itself reports it
            finally:
                segment.file.close()
            bases -= {other for other in bases if base_offset < other < end_offset}
        return sorted(bases)

    # Batches

    def _begin_at(self, base_offset: int) -> None:
        """Set the producers' state at a segment's beginning: as replayed, or if that is unknown, from the snapshot."""
        if self._known and (self._begun or base_offset == 0):
            return
        found = self._snapshots.state_at(base_offset)
        self._producers = ProducerStates(found or ())
        self._known = found is not None

    def _check_segment(self, base_offset: int, successor: int | None) -> None:
        swapped = base_offset in self._swapped
        segment = ReadSegment(self._directory, base_offset, SWAP if swapped else "")
        self._report.segments += 1
        self._begun = True
        file = f"{self._label}/{segment.name}"
        known_before = self._known
        facts = SegmentFacts(self._directory, self._label, base_offset, 0, segment.size_bytes, False)
        facts.compacted = self._expected.compacted
        wanted = Wanted(self._directory, base_offset)
        self._next_offset = base_offset
        try:
            for position, header, data in batches(segment, 0):
                if not self._check_batch(file, position, header, data, successor):
                    facts.whole = False
                    if self._torn():
                        self._report.advance(segment.size_bytes - position)
                        break
                self._take(facts, file, position, header, data, wanted)
                self._report.advance(header.size_bytes)
        except CorruptLogFile as error:
            facts.whole = False
            if self._torn() and is_room(segment.file, error.position, segment.size_bytes):
                room = f"{segment.size_bytes - error.position} reserved bytes follow the last batch"
                self._report.add(Level.NOTE, file, room, ROOM, position=error.position, offset=self._next_offset)
            else:
                self._stop_at(file, error.position, error.why)
            self._report.advance(segment.size_bytes - error.position)
        finally:
            segment.file.close()
        end_offset = self._next_offset
        trusted = end_offset <= self._expected.recovery_point and (
            successor is not None or self._expected.recovery_point == ALL_TRUSTED
        )
        facts.final, facts.exact = trusted, known_before
        facts.torn = self._torn()
        facts.closed_in_order = self._expected.recovery_point == ALL_TRUSTED
        facts.next_offset = end_offset if successor is None else successor
        if not swapped:  # otherwise its indexes have mixed names, next to the indexes of the replaced segments
            IndexCheck(facts, self._report).run()
        if successor is not None:
            if facts.whole and end_offset < successor and not self._expected.compacted:
                what = f"ends at offset {end_offset}, the next segment begins at {successor}"
                self._report.damage(file, what, RESTORE, position=facts.log_bytes, offset=end_offset)
            self._next_offset = max(self._next_offset, successor)
        if not facts.whole:
            self._known = False

    def _torn(self) -> bool:
        """Whether a bad batch at the current offset is a torn end after a crash, and not a loss."""
        return self._next_offset >= self._expected.recovery_point

    def _stop_at(self, file: str, position: int, what: str) -> None:
        torn = self._torn()
        self._report.add(
            Level.NOTE if torn else Level.DAMAGE,
            file,
            what,
            TORN if torn else f"{RESTORE}; the rest of the segment cannot be read either",
            position=position,
            offset=self._next_offset,
        )

    def _check_batch(
        self, file: str, position: int, header: BatchHeader, data: memoryview, successor: int | None
    ) -> bool:
        """Whether the batch is undamaged."""
        self._report.batches += 1
        self._report.records += header.record_count
        self._report.size_bytes += header.size_bytes
        why = self._wrong_offsets(header, successor)
        if why is None and not check_crc(data, 0, header):
            why = "the CRC-32C of the batch does not match its bytes"
        if why is None and not self._expected.shallow:
            why = self._wrong_records(file, position, header, data)
        if why is None:
            self._check_epoch(file, position, header)
            return True
        self._stop_at(file, position, why)
        return False

    def _wrong_offsets(self, header: BatchHeader, successor: int | None) -> str | None:
        if header.base_offset < self._next_offset:
            return f"base offset {header.base_offset} does not rise, expected {self._next_offset}"
        if header.base_offset > self._next_offset and (successor is None or not self._expected.compacted):
            return f"base offset {header.base_offset} leaves a gap, expected {self._next_offset}"
        if successor is not None and header.last_offset >= successor:
            return f"offset {header.last_offset} reaches into the next segment, which begins at {successor}"
        return None

    def _wrong_records(self, file: str, position: int, header: BatchHeader, data: memoryview) -> str | None:
        listed = self._expected.records is not None and not header.is_control
        try:
            unpacked = unpack_records(data, 0, header)
            largest = check_records(unpacked, header, RecordRules(), 0).max_timestamp
            records = decode_unpacked(unpacked, header) if listed else ()
        except UnreadableBatch as error:
            what = f"the records cannot be read: {error}"
            if self._expected.records is not None or header.is_control:
                return what
            meaning = "The checksum matches, so the producer sent it like this; readers fail or skip the batch"
            self._report.add(Level.WARNING, file, what, meaning, position=position, offset=header.base_offset)
            return None
        if header.record_count and not header.timestamp_type and largest != header.max_timestamp:
            what = f"the largest timestamp is {largest} ms, the header has {header.max_timestamp} ms"
            meaning = "The checksum matches, so the producer sent it like this; searches by time may miss a record"
            self._report.add(Level.WARNING, file, what, meaning, position=position, offset=header.base_offset)
        for record in records:
            if self._expected.records is not None and (wrong := self._expected.records(record)) is not None:
                return f"the record at offset {record.offset} {wrong}"
        return None

    def _check_epoch(self, file: str, position: int, header: BatchHeader) -> None:
        if self._epochs is None:
            return
        known = self._epochs.epoch_of(header.base_offset)
        if known == header.partition_leader_epoch:
            self._epochs_agreed += 1
        elif len(self._epochs_differed) <= self._epochs_agreed:
            self._epochs_differed.append((file, position, header, known))

    def _report_epochs(self) -> None:
        """No checksum covers the epochs: if batches and checkpoint differ, the minority is reported as wrong."""
        meaning = "The records are complete; a client may see a log truncation that never happened"
        if any(known < 0 for *_, known in self._epochs_differed) or len(self._epochs_differed) > self._epochs_agreed:
            file, _, header, known = self._epochs_differed[0]
            what = f"holds epoch {known} for a batch of epoch {header.partition_leader_epoch}"
            self._report.damage(f"{self._label}/{LEADER_EPOCHS}", what, meaning, offset=header.base_offset)
            return
        for file, position, header, known in self._epochs_differed:
            what = f"the batch has leader epoch {header.partition_leader_epoch}, {LEADER_EPOCHS} has {known}"
            self._report.damage(file, what, meaning, position=position, offset=header.base_offset)

    def _take(
        self, facts: SegmentFacts, file: str, position: int, header: BatchHeader, data: memoryview, wanted: Wanted
    ) -> None:
        """Apply a batch to the state, and compare the snapshot at its offset."""
        self._snapshots.reach(header.base_offset, self._producers if self._known and facts.whole else None)
        facts.largest_ms = max(facts.largest_ms, header.max_timestamp)
        if wanted.has(position, header.base_offset, header.last_offset):
            facts.places.append(
                Place(position, header.base_offset, header.last_offset, header.max_timestamp, facts.largest_ms)
            )
        if header.producer_id >= 0 and facts.whole:
            try:
                aborted = replay(self._producers, file, position, header, data)
            except CorruptLogFile as error:
                facts.whole = False
                self._stop_at(file, position, error.why)
            else:
                if aborted is not None:
                    facts.aborted.append(aborted)
        self._next_offset = max(self._next_offset, header.next_offset)
        self._snapshots.reach(self._next_offset, self._producers if self._known and facts.whole else None)

    # Other files

    def _load_epochs(self) -> LeaderEpochs | None:
        file = f"{self._label}/{LEADER_EPOCHS}"
        try:
            data = load(self._directory / LEADER_EPOCHS)
            entries = decode_epochs(data, file)
            if data is not None and data != encode_epochs(entries):
                raise CorruptLogFile(file, 0, "was changed after it was written")
        except CorruptLogFile as error:
            self._report.damage(file, error.why, "The next start rebuilds it from the batches")
            return None
        for before, after in pairwise(entries):
            if before[0] >= after[0] or before[1] >= after[1]:
                self._report.damage(
                    file,
                    f"epoch {after} does not follow {before}",
                    "Clients may see a log truncation that never happened",
                )
                return None
        return LeaderEpochs(MemoryStore(), entries) if data is not None else None

    def _check_start(self, first_offset: int) -> None:
        if self._expected.exact_start and first_offset > self._expected.log_start_offset:
            what = f"the first segment is missing: the log begins at offset {first_offset}, but"
            what += f" records from {self._expected.log_start_offset} on were kept"
            self._report.damage(self._label, what, RESTORE, offset=self._expected.log_start_offset)

    def _check_end(self, bases: list[int]) -> None:
        expected = self._expected
        end_offset = self._next_offset
        if end_offset < expected.known_end:
            file = f"{self._label}/{file_name(bases[-1], '.log')}" if bases else self._label
            what = f"the log ends at offset {end_offset}, but everything below {expected.known_end} was durable"
            self._report.damage(file, what, RESTORE, offset=end_offset)
        start = max(bases[0] if bases else 0, min(expected.log_start_offset, end_offset))
        undecided = self._producers.first_undecided_offset()
        stable = end_offset if undecided is None else max(undecided, start)
        count = sum(1 for _ in self._producers.open_transactions())
        self._report.partitions.append(PartitionFacts(self._label, start, end_offset, stable, count))


__all__ = ["ALL_TRUSTED", "SNAPSHOT_SUFFIX", "Expectations", "PartitionCheck", "RecordCheck"]
