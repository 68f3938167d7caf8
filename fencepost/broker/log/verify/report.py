"""What a check of a data directory found: findings for people and for machines, and how much was looked at."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum


class Level(Enum):
    """How much a finding matters. Only DAMAGE makes the check fail."""

    DAMAGE = "damage"
    """Something that was once acknowledged or written down as final is not there any more, or not as it was."""
    WARNING = "warning"
    """Not as it should be, and nothing is lost by it."""
    NOTE = "note"
    """What a crash leaves, and the next start clears up by itself."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    level: Level
    file: str
    """Relative to the data directory."""
    position: int | None
    """Byte in the file; None where the file as a whole is meant."""
    offset: int | None
    """Offset in the partition's log; None where there is none."""
    what: str
    meaning: str
    """What follows from it, and what to do."""

    def __str__(self) -> str:
        place = self.file
        if self.position is not None:
            place += f" at byte {self.position}"
        if self.offset is not None:
            place += f", offset {self.offset}"
        return f"{self.level.value}: {place}: {self.what}. {self.meaning}"

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "level": self.level.value}


@dataclass(slots=True)
class PartitionFacts:
    """The bounds of one partition as its batches give them."""

    partition: str
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    open_transactions: int


@dataclass(slots=True)
class Report:
    """Everything found, and what was looked at. `found` is told of each finding at once, `advance` of bytes read."""

    found: Callable[[Finding], None] = lambda finding: None
    advance: Callable[[int], None] = lambda size_bytes: None
    findings: list[Finding] = field(default_factory=list)
    partitions: list[PartitionFacts] = field(default_factory=list)
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0

    @property
    def damaged(self) -> bool:
        """Whether anything is hurt that was durable."""
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
        """Keep a finding and tell of it."""
        finding = Finding(level, file, position, offset, what, meaning)
        self.findings.append(finding)
        self.found(finding)

    def damage(
        self, file: str, what: str, meaning: str, *, position: int | None = None, offset: int | None = None
    ) -> None:
        """Keep a finding that makes the check fail."""
        self.add(Level.DAMAGE, file, what, meaning, position=position, offset=offset)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "damaged": self.damaged,
            "findings": [finding.as_dict() for finding in self.findings],
            "partitions": [asdict(facts) for facts in self.partitions],
            "segments": self.segments,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.size_bytes,
        }
