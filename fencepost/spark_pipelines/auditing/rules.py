"""The rules of exactly once, folded over the batches of one partition. No I/O: the caller reads the batches.

The batches must be in the order of the log. The rules for sequences, epochs and markers are those that a broker checks
on append: idempotence (KIP-98), and epochs that rise with each transaction (KIP-890).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fencepost.protocol.sequence import advance
from fencepost.spark_pipelines.auditing.bounds import Bounds
from fencepost.spark_pipelines.auditing.facts import ABORT, CHANGED, COMMIT, DAMAGE, DATA, DIFFERS, INDEXED, LOST, Fact
from fencepost.spark_pipelines.auditing.findings import (
    ABORTED,
    COMMITTED,
    HOLES,
    MARKERS,
    OPEN,
    Hole,
    OpenTransaction,
    PartitionReport,
    Rule,
)
from fencepost.spark_pipelines.auditing.owners import Owner, with_owners
from fencepost.spark_pipelines.auditing.strip import Strip

_REMEMBERED = 64
"""The number of batches per producer whose offsets are kept, so that a fault can name a duplicate's original."""
_HALF = 1 << 30
_HOLES_KEPT = 100
OWNER_UNKNOWN = "the source does not report its transactional.id"


@dataclass
class _Producer:
    epoch: int
    next_sequence: int | None
    """None: no batch of this producer was seen before, so any sequence is valid."""
    seen: int = 0
    """The offset of its last batch or marker."""
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """First sequence, last sequence, base offset."""


@dataclass
class _Open:
    epoch: int
    first_offset: int
    records: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)


class PartitionAudit:
    """The fold of one partition: call `take` for every fact, then `finish`."""

    def __init__(self, topic: str, partition: int, bounds: Bounds) -> None:
        self.report = PartitionReport(topic, partition, start=bounds.start)
        self._bounds = bounds
        self._next = bounds.start
        self._started = self._truncated = False
        self._producers: dict[int, _Producer] = {}
        self._open: dict[int, _Open] = {}
        self._indexed: dict[tuple[int, int], int] = {}
        self._closed: dict[tuple[int, int], int] = {}
        """The marker's offset of each aborted range, by (producer id, first offset)."""
        self._compacted_to = bounds.compacted_to if bounds.compacted else 0
        self._bare: set[tuple[int, int]] = set()
        """(producer id, offset) of ABORT markers without records before them; kept for compacted logs."""
        self._strip = Strip(bounds.start)
        if bounds.start > 0:
            self._explain(0, bounds.start - 1, bounds.why_start, drawn=False)

    def take(self, fact: Fact) -> None:
        """Process the next row."""
        if fact.kind == INDEXED:
            self._indexed[fact.producer_id, fact.base_offset] = fact.last_offset
            return
        if self._truncated:
            return
        report = self.report
        if fact.kind == DIFFERS:
            report.fault(Rule.ROWS, fact.base_offset, fact.note or "")
            return
        if fact.kind in (LOST, CHANGED):
            self._begin_again(fact)
            return
        if fact.note is not None:
            durable = self._bounds.durable
            if durable is not None and self._next >= durable:
                self._truncated = True
                report.notes.append(
                    f"a crash damaged the log at offset {self._next}: the broker's next start truncates it there"
                )
                return
            report.fault(Rule.WHOLE, fact.base_offset, f"at offset {fact.base_offset}: {fact.note}")
        if fact.kind == DAMAGE:
            return
        report.batches += 1
        report.size_bytes += fact.size_bytes
        self._density(fact)
        if fact.kind == DATA:
            self._sequence(fact)
            self._data(fact)
        elif fact.kind in (COMMIT, ABORT):
            self._marker(fact)
        else:
            self._strip.add(MARKERS, fact.base_offset, fact.last_offset)
        self._next = max(self._next, fact.last_offset + 1)

    def finish(self) -> PartitionReport:
        """The report. Call this after the last fact."""
        report = self.report
        self._end()
        report.end = self._next
        report.producers = len(self._producers)
        firsts = [one.first_offset for one in self._open.values()]
        report.last_stable_offset = min(firsts, default=report.end)
        for producer_id, one in sorted(self._open.items(), key=lambda item: item[1].first_offset):
            self._still_open(producer_id, one)
        self._stable()
        self._compare_index()
        report.strip, report.cell_offsets = self._strip.cells(report.end)
        return report

    # Offsets

    def _begin_again(self, fact: Fact) -> None:
        """The batches of these offsets are unknown: what came before them proves nothing about what follows."""
        if fact.base_offset > self._next:
            self._missing(self._next, fact.base_offset - 1)
        if fact.kind == LOST:
            self.report.fault(Rule.STORED, fact.base_offset, fact.note or "")
            self._strip.add(HOLES, fact.base_offset, fact.last_offset)
        else:
            self._explain(fact.base_offset, fact.last_offset, fact.note or "")
        self._next = max(self._next, fact.last_offset + 1)
        self._started = True
        self._bounds = replace(self._bounds, start=self._next, stable=None)
        for one in self._open.values():
            self._draw(one, OPEN)
            self.report.open_records += one.records
        self._open.clear()
        self._producers.clear()
        self._closed.clear()

    def _density(self, fact: Fact) -> None:
        first, expected = fact.base_offset, self._next
        if not self._started:
            self._started = True
            expected = max(expected, min(first, self._bounds.start))
        if first < expected and fact.last_offset >= self._bounds.start and not self._cut_by_start(fact):
            self.report.fault(
                Rule.DENSE, first, f"a batch of offsets {first} to {fact.last_offset} where {expected} was expected"
            )
        elif first > expected:
            self._missing(expected, first - 1)
        span = fact.last_offset - first + 1
        if fact.records < span and fact.kind == DATA:
            if first < self._compacted_to:
                self._strip.add(HOLES, first, first + span - fact.records - 1)
                self._explain(first, fact.last_offset, f"compaction kept {fact.records} of {span} records", drawn=False)
            else:
                self.report.fault(
                    Rule.DENSE,
                    first,
                    f"the batch of offsets {first} to {fact.last_offset} holds {fact.records} records",
                )

    def _cut_by_start(self, fact: Fact) -> bool:
        """Whether this is the first batch, and DeleteRecords deleted its first records."""
        return self._next == self._bounds.start and fact.base_offset < self._bounds.start <= fact.last_offset

    def _missing(self, first: int, last: int) -> None:
        if first < self._compacted_to:
            self._explain(first, min(last, self._compacted_to - 1), "compaction removed whole batches")
            if last < self._compacted_to:
                return
            first = self._compacted_to
        self._strip.add(HOLES, first, last)
        count = last - first + 1
        what = f"offset {first} is" if count == 1 else f"offsets {first} to {last} are"
        self.report.fault(Rule.DENSE, first, f"{what} missing, without an explanation")

    def _explain(self, first: int, last: int, why: str, *, drawn: bool = True) -> None:
        if drawn:
            self._strip.add(HOLES, first, last)
        holes = self.report.holes
        if holes and holes[-1].why == why and holes[-1].last + 1 == first:
            holes[-1] = Hole(holes[-1].first, last, why)
        elif len(holes) < _HOLES_KEPT:
            holes.append(Hole(first, last, why))
        elif len(holes) == _HOLES_KEPT:
            holes.append(Hole(first, last, "further holes of compaction are not listed"))

    def _end(self) -> None:
        end = self._bounds.end
        if end is None or self._next == end:
            return
        if self._next < end:
            self._missing(self._next, end - 1)
            self._next = end
        elif not self._bounds.end_is_least:
            self.report.notes.append(f"the log grew to offset {self._next} during the audit")

    # Producers

    def _sequence(self, fact: Fact) -> None:
        if fact.producer_id < 0 or fact.base_sequence < 0:
            return
        known = self._producers.get(fact.producer_id)
        producer = f"producer {fact.producer_id} epoch {fact.producer_epoch}"
        if known is None:
            known = self._producers[fact.producer_id] = _Producer(fact.producer_epoch, None)
        elif fact.producer_epoch < known.epoch:
            what = f"{producer} writes after epoch {known.epoch} of the same producer: it should have been fenced"
            self.report.fault(Rule.FENCED, fact.base_offset, what)
            return
        elif fact.producer_epoch > known.epoch:
            known.epoch, known.next_sequence = fact.producer_epoch, 0
            known.recent.clear()
        count = fact.last_offset - fact.base_offset + 1
        expected = known.next_sequence
        if expected is not None and fact.base_sequence != expected:
            distance = (expected - fact.base_sequence) & 0x7FFFFFFF
            if distance < _HALF:
                self._duplicate(fact, known, producer)
                return
            if known.seen >= self._compacted_to:
                what = f"{producer} continues with sequence {fact.base_sequence} where {expected} was expected"
                self.report.fault(Rule.GAPLESS, fact.base_offset, what)
        known.seen = fact.base_offset
        known.next_sequence = advance(fact.base_sequence, count)
        known.recent.append((fact.base_sequence, known.next_sequence, fact.base_offset))

    def _duplicate(self, fact: Fact, known: _Producer, producer: str) -> None:
        at = next((offset for first, _, offset in known.recent if first == fact.base_sequence), None)
        where = "earlier" if at is None else f"at offset {at}"
        what = f"sequence {fact.base_sequence} of {producer} is here a second time; the first is {where}"
        self.report.fault(Rule.ONCE, fact.base_offset, what)

    # Transactions

    def _data(self, fact: Fact) -> None:
        first, last = max(fact.base_offset, self._bounds.start), fact.last_offset
        one = self._open.get(fact.producer_id)
        visible = max(0, min(fact.records, last - first + 1))
        if not fact.transactional:
            if one is not None and fact.producer_id >= 0:
                what = (
                    f"producer {fact.producer_id} writes outside its transaction, which is open since offset"
                    f" {one.first_offset}"
                )
                self.report.fault(Rule.CLOSED, fact.base_offset, what)
            self.report.committed += visible
            self._strip.add(COMMITTED, first, last)
            return
        if one is not None and one.epoch != fact.producer_epoch:
            self._unclosed(fact, one)
            one = None
        if one is None:
            one = self._open[fact.producer_id] = _Open(fact.producer_epoch, fact.base_offset)
        one.records += visible
        if one.spans and one.spans[-1][1] + 1 == first:
            one.spans[-1] = (one.spans[-1][0], last)
        else:
            one.spans.append((first, last))

    def _unclosed(self, fact: Fact, one: _Open) -> None:
        """The producer continues with another epoch, which is valid only after a marker."""
        del self._open[fact.producer_id]
        what = (
            f"the transaction of producer {fact.producer_id} epoch {one.epoch} that began at offset {one.first_offset} "
            f"has no marker, yet epoch {fact.producer_epoch} continues at offset {fact.base_offset}"
        )
        self.report.fault(Rule.CLOSED, one.first_offset, what)
        self._draw(one, OPEN)
        self.report.open_records += one.records

    def _marker(self, fact: Fact) -> None:
        self._strip.add(MARKERS, fact.base_offset, fact.last_offset)
        known = self._producers.get(fact.producer_id)
        if known is not None:
            known.seen = fact.base_offset
        if known is not None and fact.producer_epoch > known.epoch:
            known.epoch, known.next_sequence = fact.producer_epoch, 0
            known.recent.clear()
        elif known is not None and fact.producer_epoch < known.epoch:
            what = f"a marker of producer {fact.producer_id} epoch {fact.producer_epoch} after epoch {known.epoch}"
            self.report.fault(Rule.FENCED, fact.base_offset, what)
        one = self._open.pop(fact.producer_id, None)
        if one is None:
            self.report.bare_markers += 1
            if fact.kind == ABORT and self._compacted_to:
                self._bare.add((fact.producer_id, fact.base_offset))
            return
        if fact.kind == COMMIT:
            self.report.commits += 1
            self.report.committed += one.records
            self._draw(one, COMMITTED)
            return
        self.report.aborts += 1
        self.report.aborted += one.records
        self._draw(one, ABORTED)
        self._closed[fact.producer_id, one.first_offset] = fact.base_offset

    def _draw(self, one: _Open, what: str) -> None:
        for first, last in one.spans:
            self._strip.add(what, first, last)

    def _still_open(self, producer_id: int, one: _Open) -> None:
        self._draw(one, OPEN)
        self.report.open_records += one.records
        self.report.open.append(OpenTransaction(producer_id, one.epoch, one.first_offset, one.records, OWNER_UNKNOWN))

    def _stable(self) -> None:
        if self._bounds.stable is None or self._bounds.end is None or self.report.end != self._bounds.end:
            return
        before, after = self._bounds.stable
        found = self.report.last_stable_offset
        if not before <= found <= max(before, after):
            what = f"the broker reports {before}, but the batches give {found}"
            self.report.fault(Rule.STABLE, found, what)

    def _compare_index(self) -> None:
        """Compare the list of aborted transactions with the markers. Readers skip exactly what the list names."""
        listed = self._bounds.listed
        # A transaction may begin below the log's start. Its remaining batches then begin later than in the list.
        cut = {producer_id for producer_id, first in self._indexed if first < self._bounds.start}
        # Compaction removes the first batches of an aborted transaction before its last ones, and its marker last.
        markers = self._markers_of(self._indexed) if self._compacted_to else set()
        for (producer_id, first), marker in self._closed.items():
            listed_end = self._indexed.get((producer_id, first))
            if listed_end is None:
                if (producer_id, marker) in markers:
                    continue
                if producer_id not in cut and (listed is None or first < listed) and marker >= self._bounds.start:
                    what = f"offsets {first} to {marker} of producer {producer_id} are aborted, but not in the list"
                    self.report.fault(Rule.INDEX, first, what)
            elif listed_end not in (-1, marker):
                what = f"the list ends the aborted range from {first} at {listed_end}, but its marker is at {marker}"
                self.report.fault(Rule.INDEX, first, what)
        markers = (self._markers_of(self._closed) | self._bare) if self._compacted_to else set()
        for (producer_id, first), marker in self._indexed.items():
            if (producer_id, first) in self._closed or first < self._bounds.start or (producer_id, marker) in markers:
                continue
            to = f" to {marker}" if marker >= 0 else ""
            what = f"the list names aborted offsets {first}{to} of producer {producer_id}, but no marker aborts them"
            self.report.fault(Rule.CLOSED, first, what)

    def _markers_of(self, ranges: Mapping[tuple[int, int], int]) -> set[tuple[int, int]]:
        return {(producer_id, marker) for (producer_id, _), marker in ranges.items()}


__all__ = ["Bounds", "Owner", "PartitionAudit", "with_owners"]
