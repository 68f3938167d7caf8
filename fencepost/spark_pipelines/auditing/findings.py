"""The result of an audit: for each partition its counts, faults, explained holes, and a strip to draw."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

COMMITTED, ABORTED, OPEN, MARKERS, HOLES = "committed", "aborted", "open", "markers", "holes"
CLASSES = (COMMITTED, ABORTED, OPEN, MARKERS, HOLES)
"""The classes of offsets: committed record, aborted record, record of an open transaction, marker, hole."""
FAULTS_KEPT = 200
"""The number of faults that a partition's report lists. It only counts further ones."""


class Rule(StrEnum):
    """The rules that a fault can break."""

    DENSE = "offsets are dense"
    ONCE = "no (producer id, epoch, sequence) twice"
    GAPLESS = "no sequence is missing"
    FENCED = "a producer's epoch never decreases"
    CLOSED = "every transaction is closed by a marker"
    INDEX = "the list of aborted transactions matches the markers"
    STABLE = "the last stable offset is where the oldest open transaction begins"
    WHOLE = "every batch is unchanged since it was written"
    ROWS = "every row of the database agrees with its batches and its neighbours"
    STORED = "the bytes of every row are in the stores"
    KEPT = "no object that a row names is due for deletion"


OF_STORES = frozenset({Rule.ROWS, Rule.STORED, Rule.KEPT})
"""The rules that only an audit of a cluster's stores checks."""

MEANINGS = {
    Rule.DENSE: "Acknowledged records are lost, or offsets were given twice: restore a backup, or write the missing"
    " records again",
    Rule.ONCE: "Consumers read these records twice: the broker should have refused the second batch. Report it with"
    " this audit",
    Rule.GAPLESS: "Records of this producer are lost: compare the topic with the producer's source, and restore a"
    " backup or write them again",
    Rule.FENCED: "A producer that was replaced has written, so records may be there twice: report it with this audit",
    Rule.CLOSED: "Readers of committed records wait here, or see records of a transaction that did not commit:"
    " `fencepost txn why TOPIC PARTITION` shows its state; restore a backup if the marker is lost",
    Rule.INDEX: "Readers of committed records see aborted ones, or miss committed ones: restore a backup",
    Rule.STABLE: "Readers of committed records stop too early, or read records that may still be aborted: restart the"
    " broker, audit again, and restore a backup if the fault stays",
    Rule.WHOLE: "Readers fail at this batch: restore a backup",
    Rule.ROWS: "Brokers decide by the row, but readers get the batches: restore database and objects from one backup",
    Rule.STORED: "The records of this row cannot be read: copy the object from a backup to its name, or restore"
    " database and objects",
    Rule.KEPT: "Garbage collection may delete the object, and then its records are lost: stop the brokers, back up the"
    " objects, and restore the database",
}
"""What follows from a broken rule, and what to do."""


def counted(number: int, thing: str) -> str:
    """`1 record`, `26,667 records`, `2 batches`."""
    ending = "" if number == 1 else "es" if thing.endswith("ch") else "s"
    return f"{number:,} {thing}{ending}"


@dataclass(frozen=True)
class Fault:
    """One broken rule, the offset of the fault, and its description."""

    rule: str
    offset: int
    what: str
    meaning: str = ""
    """What follows, and what to do."""
    place: str = ""
    """With the stores of a cluster: the object of the row that has this offset, or `a row in the database`."""

    def __str__(self) -> str:
        where = f" in {self.place}" if self.place else ""
        return f"offset {self.offset:,}{where}: {self.what} ({self.rule})"


@dataclass(frozen=True)
class Hole:
    """Offsets `first` to `last` hold no record; `why` explains them."""

    first: int
    last: int
    why: str


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction without a marker, and its coordinator's state."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    records: int
    why: str


@dataclass
class PartitionReport:
    """The result for one partition, for offsets from `start` to before `end`."""

    topic: str
    partition: int
    start: int = 0
    end: int = 0
    last_stable_offset: int = 0
    batches: int = 0
    size_bytes: int = 0
    committed: int = 0
    aborted: int = 0
    open_records: int = 0
    commits: int = 0
    aborts: int = 0
    bare_markers: int = 0
    producers: int = 0
    faults: list[Fault] = field(default_factory=list)
    faults_in_all: int = 0
    holes: list[Hole] = field(default_factory=list)
    open: list[OpenTransaction] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    strip: list[dict[str, int]] = field(default_factory=list)
    """The offsets from start to end in cells of equal size, each with its count of offsets by class."""
    cell_offsets: int = 1
    """The number of offsets per cell."""

    def fault(self, rule: Rule, offset: int, what: str) -> None:
        self.faults_in_all += 1
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(Fault(rule.value, offset, what, MEANINGS[rule]))

    def meanings(self) -> list[str]:
        """What follows from the faults, and what to do: one sentence for each broken rule."""
        return list(dict.fromkeys(fault.meaning for fault in self.faults if fault.meaning))

    @property
    def name(self) -> str:
        """TOPIC-PARTITION."""
        return f"{self.topic}-{self.partition}"

    @property
    def markers(self) -> int:
        """The number of control batches that end a transaction, also of transactions without records here."""
        return self.commits + self.aborts + self.bare_markers

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PartitionReport:
        """The report from the JSON of a task."""
        tree = json.loads(text)
        tree["faults"] = [Fault(**one) for one in tree["faults"]]
        tree["holes"] = [Hole(**one) for one in tree["holes"]]
        tree["open"] = [OpenTransaction(**one) for one in tree["open"]]
        return cls(**tree)


@dataclass
class AuditReport:
    """The result of `audit` for all partitions."""

    source: str
    partitions: list[PartitionReport]
    seconds: float = 0.0
    rules: list[str] = field(default_factory=lambda: [rule.value for rule in Rule if rule not in OF_STORES])
    """The rules that were checked."""

    @property
    def faults(self) -> int:
        return sum(one.faults_in_all for one in self.partitions)

    @property
    def sound(self) -> bool:
        return self.faults == 0

    def total(self, name: str) -> int:
        return sum(int(getattr(one, name)) for one in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """The report as a tree for JSON."""
        return {"sound": self.sound, "faults": self.faults, **asdict(self)}

    def verdict(self) -> str:
        """The result in one sentence."""
        places = counted(len(self.partitions), "partition")
        if not self.sound:
            return f"NOT exactly once: {counted(self.faults, 'fault')} in {places}."
        offsets = "compaction explains every missing offset" if self._has_gaps else "offsets dense"
        aborts = self.total("aborts")
        closed = f"{counted(aborts, 'aborted range')} closed by {'its marker' if aborts == 1 else 'their markers'}"
        return (
            f"Exactly once: {counted(self.total('committed'), 'committed record')} in {places}, {offsets},"
            f" no sequence twice, {closed}."
        )

    @property
    def _has_gaps(self) -> bool:
        return any(hole.first >= one.start for one in self.partitions for hole in one.holes)
