"""The result of a check of a data directory: its findings, and how much it read."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum


class Level(Enum):
    """How much a finding matters. Only DAMAGE makes the check fail."""

    DAMAGE = "damage"
    """Acknowledged or durable data is missing or changed."""
    WARNING = "warning"
    """A fault without loss of data."""
    NOTE = "note"
    """A trace of a crash, which the next start removes."""


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    file: str
    """Relative to the data directory."""
    position: int | None
    """Byte in the file; None for the whole file."""
    offset: int | None
    """Offset in the partition's log; None if it has none."""
    what: str
    meaning: str
    """The consequence, and what to do."""

    def __str__(self) -> str:
        place = self.file
        if self.position is not None:
            place += f" at byte {self.position}"
        if self.offset is not None:
            place += f", offset {self.offset}"
        return f"{self.level.value}: {place}: {self.what}. {self.meaning}"

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "level": self.level.value}


@dataclass(slots=True)
class PartitionFacts:
    """The bounds of one partition, computed from its batches."""

    partition: str
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    open_transactions: int


@dataclass(slots=True)
class Report:
    """All findings, and counts of the checked data. Calls `found` for each finding, and `advance` with bytes read."""

    found: Callable[[Finding], None] = lambda finding: None
    advance: Callable[[int], None] = lambda size_bytes: None
    below: str = ""
    """The directory that is being checked, below the data directory, with a slash at its end."""
    findings: list[Finding] = field(default_factory=list)
    partitions: list[PartitionFacts] = field(default_factory=list)
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0

    @property
    def damaged(self) -> bool:
        return any(finding.level is Level.DAMAGE for finding in self.findings)

    def add(
        self,
        level: Level,
        file: str,
        what: str,
        meaning: str,
        *,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Add a finding and report it."""
        finding = Finding(level, self.below + file, position, offset, what, meaning)
        self.findings.append(finding)
        self.found(finding)

    def damage(
        self, file: str, what: str, meaning: str, *, position: int | None = None, offset: int | None = None
    ) -> None:
        self.add(Level.DAMAGE, file, what, meaning, position=position, offset=offset)

    def as_dict(self) -> dict[str, object]:
        return {
            "damaged": self.damaged,
            "findings": [finding.as_dict() for finding in self.findings],
            "partitions": [asdict(facts) for facts in self.partitions],
            "segments": self.segments,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.size_bytes,
        }
