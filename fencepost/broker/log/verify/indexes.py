"""Checks the indexes of one segment against its batches (rows L1, I2, I3)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from fencepost.broker.log.recovery.seals import SEAL_SUFFIX, Seal, decode_seal
from fencepost.broker.log.storage.indexes import OFFSET_ENTRY, TIME_ENTRY, FileSeal
from fencepost.broker.log.storage.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, file_name
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.log.storage.txn_index import TXN_ENTRY, AbortedTransaction
from fencepost.broker.log.verify.files import load, seal_of
from fencepost.broker.log.verify.report import Level, Report

REMADE = "The next start rebuilds it from the batches"
LEAK = (
    "read_committed consumers could receive aborted records or miss committed ones; the next start rebuilds it from the"
    " batches"
)


class Place(NamedTuple):
    """One batch of a segment that an index refers to."""

    position: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    largest_so_far_ms: int


@dataclass(slots=True)
class SegmentFacts:
    """The facts of one segment's batches that its indexes must match."""

    directory: Path
    label: str
    """The partition's directory, relative to the data directory."""
    base_offset: int
    next_offset: int
    log_bytes: int
    final: bool
    """Closed to appends and durable, so that its indexes must be complete."""
    closed_in_order: bool = True
    """Whether the last shutdown was clean."""
    torn: bool = False
    """Whether it ends above the recovery point: missing records there were never acknowledged."""
    whole: bool = True
    """Whether all its batches are readable; otherwise the right content of the indexes is unknown."""
    exact: bool = True
    """Whether the open transactions at its beginning are known."""
    compacted: bool = False
    places: list[Place] = field(default_factory=list)
    """The batches that an index refers to."""
    largest_ms: int = -1
    """The largest timestamp of all batches."""
    aborted: list[AbortedTransaction] = field(default_factory=list)


class Wanted:
    """The batches that the indexes of a segment refer to: the check stores facts of these only."""

    def __init__(self, directory: Path, base_offset: int) -> None:
        self._positions = {position for _, position in _entries(directory, base_offset, INDEX_SUFFIX, OFFSET_ENTRY)}
        times = _entries(directory, base_offset, TIME_INDEX_SUFFIX, TIME_ENTRY)
        self._offsets = sorted({base_offset + relative for _, relative in times})
        self._next = 0

    def has(self, position: int, base_offset: int, last_offset: int) -> bool:
        """Whether an index refers to this batch; the caller must ask for all batches in order."""
        offsets = self._offsets
        while self._next < len(offsets) and offsets[self._next] < base_offset:
            self._next += 1
        return position in self._positions or (self._next < len(offsets) and offsets[self._next] <= last_offset)


def _entries(directory: Path, base_offset: int, suffix: str, entry: Struct) -> Iterator[tuple[int, ...]]:
    data = load(directory / file_name(base_offset, suffix)) or b""
    return entry.iter_unpack(data[: len(data) - len(data) % entry.size])


class IndexCheck:
    """The check of one segment's `.index`, `.timeindex`, `.txnindex` and `.seal`."""

    def __init__(self, facts: SegmentFacts, report: Report) -> None:
        self._facts = facts
        self._report = report
        self._seal: Seal | None = None

    def run(self) -> None:
        """Check all four files. Raises OSError."""
        self._check_seal()
        self._check_offsets(*self._load(INDEX_SUFFIX, OFFSET_ENTRY))
        self._check_times(*self._load(TIME_INDEX_SUFFIX, TIME_ENTRY))
        self._check_aborted(*self._load(TXN_INDEX_SUFFIX, TXN_ENTRY))

    def _path(self, suffix: str) -> Path:
        return self._facts.directory / file_name(self._facts.base_offset, suffix)

    def _file(self, suffix: str) -> str:
        return f"{self._facts.label}/{file_name(self._facts.base_offset, suffix)}"

    def _load(self, suffix: str, entry: Struct) -> tuple[str, list[tuple[int, ...]]]:
        """The file's name and its entries. Reports an incomplete entry, and a difference from the seal."""
        data = load(self._path(suffix)) or b""
        file = self._file(suffix)
        meaning = LEAK if suffix == TXN_INDEX_SUFFIX else REMADE
        spare = len(data) % entry.size
        if spare:
            level = Level.DAMAGE if self._facts.final or self._seal is not None else Level.NOTE
            self._report.add(level, file, "ends within an entry", meaning, position=len(data) - spare)
        if self._seal is not None:
            expected = {
                INDEX_SUFFIX: self._seal.offsets,
                TIME_INDEX_SUFFIX: self._seal.times,
                TXN_INDEX_SUFFIX: self._seal.aborted,
            }[suffix]
            self._against_seal(file, data, expected, meaning)
        return file, list(entry.iter_unpack(data[: len(data) - spare]))

    def _against_seal(self, file: str, data: bytes, expected: FileSeal, meaning: str) -> None:
        found = data if self._facts.final else data[: expected.size_bytes]
        if seal_of(found) != expected:
            what = f"its {len(data)} bytes do not match the {expected.size_bytes} bytes in the seal"
            self._report.damage(file, what, meaning)

    def _check_seal(self) -> None:
        file = self._file(SEAL_SUFFIX)
        data = load(self._path(SEAL_SUFFIX))
        facts = self._facts
        if data is None:
            if facts.final and facts.log_bytes:
                self._report.add(Level.NOTE, file, "is missing", "The next start reads the whole segment and seals it")
            return
        try:
            seal = decode_seal(data, file)
        except CorruptLogFile as error:
            self._report.damage(file, error.why, "The next start reads the whole segment and seals it again")
            return
        if seal.log_bytes > facts.log_bytes or (facts.final and seal.log_bytes != facts.log_bytes):
            what = f"the segment has {facts.log_bytes} bytes, but had {seal.log_bytes} when it was sealed"
            meaning = "Records are missing: restore the file from a backup"
            if facts.torn and not facts.final:
                meaning = "A crash of the machine leaves this: the missing records were never acknowledged"
            level = Level.NOTE if facts.torn and not facts.final else Level.DAMAGE
            log_file = file.removesuffix(SEAL_SUFFIX) + ".log"
            self._report.add(level, log_file, what, meaning, position=min(facts.log_bytes, seal.log_bytes))
            return
        if facts.final and seal.end_offset != facts.next_offset:
            what = f"ends at offset {seal.end_offset}, the segment ends at {facts.next_offset}"
            self._report.add(Level.NOTE, file, what, "The next start reads the whole segment and seals it")
            return
        if not facts.closed_in_order and self._cut_back(seal):
            what = "covers more index entries than exist"
            meaning = "A kill soon after a start leaves this; the next start rebuilds them"
            self._report.add(Level.NOTE, file, what, meaning)
            facts.final = False
            return
        self._seal = seal

    def _cut_back(self, seal: Seal) -> bool:
        """Whether an index is shorter than its seal. A kill during recovery leaves that, because recovery truncates the
        entries that it adds again; so does a kill before the entries were written.
        """
        sealed = ((INDEX_SUFFIX, seal.offsets), (TIME_INDEX_SUFFIX, seal.times), (TXN_INDEX_SUFFIX, seal.aborted))
        return any(len(load(self._path(suffix)) or b"") < expected.size_bytes for suffix, expected in sealed)

    def _check_offsets(self, file: str, entries: Sequence[tuple[int, ...]]) -> None:
        facts = self._facts
        at = {place.position: place for place in facts.places}
        last_offset = last_position = -1
        for number, (relative, position) in enumerate(entries):
            offset = facts.base_offset + relative
            why = None
            place = at.get(position)
            if relative <= last_offset or position <= last_position:
                why = "does not rise"
            elif place is None:
                why = f"points to byte {position}, where no batch begins"
            elif not place.base_offset <= offset or (self._seal is not None and offset != place.last_offset):
                why = f"gives offset {offset} to the batch of {place.base_offset} to {place.last_offset}"
            if why is not None and facts.whole:
                self._wrong_entry(file, number * OFFSET_ENTRY.size, offset, f"entry {number} {why}")
                return
            last_offset, last_position = relative, position

    def _wrong_entry(self, file: str, position: int, offset: int, what: str) -> None:
        """Report a wrong entry. Above the durable part it is only a note: a crash leaves it, and the next start fixes
        it.
        """
        level = Level.DAMAGE if self._facts.final or self._seal is not None else Level.NOTE
        self._report.add(level, file, what, REMADE, position=position, offset=offset)

    def _check_times(self, file: str, entries: Sequence[tuple[int, ...]]) -> None:
        facts = self._facts
        if not facts.whole:
            return
        last_ms = last_offset = -1
        places = iter(facts.places)
        place = next(places, None)
        for number, (timestamp_ms, relative) in enumerate(entries):
            offset = facts.base_offset + relative
            while place is not None and place.last_offset < offset:
                place = next(places, None)
            why = None
            if timestamp_ms <= last_ms or relative < last_offset:
                why = "does not rise"
            elif place is None or not place.base_offset <= offset:
                why = f"holds offset {offset}, where there is no batch"
            elif not timestamp_ms == place.max_timestamp_ms == place.largest_so_far_ms:
                why = f"holds {timestamp_ms} ms, the batch {place.max_timestamp_ms} ms"
            if why is not None:
                self._wrong_entry(file, number * TIME_ENTRY.size, offset, f"entry {number} {why}")
                return
            last_ms, last_offset = timestamp_ms, relative
        if facts.final and facts.largest_ms > last_ms and self._seal is not None:
            self._report.damage(file, f"ends at {last_ms} ms, the largest timestamp is {facts.largest_ms} ms", REMADE)

    def _check_aborted(self, file: str, entries: Sequence[tuple[int, ...]]) -> None:
        facts = self._facts
        for number, entry in enumerate(entries):
            if entry[0] != 0:
                self._bad_abort(file, number, entry[3], f"entry {number} has version {entry[0]}")
                return
        if not facts.whole or not facts.exact:
            return
        found = [AbortedTransaction(*entry[1:]) for entry in entries]
        if facts.compacted:
            self._check_compacted(file, found)
            return
        for number, (is_, should) in enumerate(zip(found, facts.aborted, strict=False)):
            if is_ != should:
                self._bad_abort(file, number, should.last_offset, f"entry {number} is {is_}, the log has {should}")
                return
        if len(found) > len(facts.aborted):
            number = len(facts.aborted)
            what = f"entry {number} is {found[number]}, the log has no such abort"
            self._bad_abort(file, number, found[number].last_offset, what)
        elif len(found) < len(facts.aborted) and (facts.final or self._seal is not None):
            lacking = facts.aborted[len(found)]
            if facts.final or (self._seal is not None and lacking.last_offset < self._seal.end_offset):
                self._bad_abort(file, len(found), lacking.last_offset, f"lacks {lacking}", Level.DAMAGE)

    def _check_compacted(self, file: str, found: Sequence[AbortedTransaction]) -> None:
        """Compaction may move the first offset of a transaction; the entry must cover all of its remaining records."""
        ends = {(entry.producer_id, entry.last_offset): entry for entry in found}
        for should in self._facts.aborted:
            covering = ends.get((should.producer_id, should.last_offset))
            if covering is None or covering.first_offset > should.first_offset:
                self._bad_abort(file, len(found), should.last_offset, f"lacks {should}")
                return

    def _bad_abort(self, file: str, number: int, offset: int, what: str, level: Level | None = None) -> None:
        if level is None:
            level = Level.DAMAGE if self._facts.final or self._seal is not None else Level.NOTE
        self._report.add(level, file, what, LEAK, position=number * TXN_ENTRY.size, offset=offset)
