"""What happens in the world of a seed: who is there, how slow everything is, and when the broker is hit by what."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

Kind = Literal["kill", "power cut", "clock jump", "slow flushes", "failed flush", "full disk", "restart"]
KINDS: tuple[Kind, ...] = (
    "kill",
    "kill",
    "power cut",
    "power cut",
    "clock jump",
    "slow flushes",
    "failed flush",
    "full disk",
    "restart",
)
STORM: tuple[Kind, ...] = ("kill", "power cut", "power cut", "power cut")


@dataclass(frozen=True)
class Event:
    """One blow to the broker, `at_seconds`; what `amount` means depends on the kind."""

    at_seconds: float
    kind: Kind
    after_calls: int
    """A death comes at this many calls to the disk after its time: in the middle of something."""
    after_passes: int
    """And so many passes of the event loop after that; 0: within the call."""
    amid_flushes: bool
    """Only the calls that flush a file are counted: of several files some are durable then, others are not."""
    amount: float
    down_seconds: float


@dataclass(frozen=True)
class Plan:
    """Everything about a world that is decided before it begins."""

    seconds: float
    """How long there are faults."""
    versions: tuple[int, ...]
    """One writer for each: by the first or the second transaction protocol."""
    transactions: int
    """Of each writer."""
    own_client: bool
    """Whether one more writer is fencepost's own client; it speaks the second protocol."""
    copier: int | None
    """The protocol of the copier, if there is one."""
    own_copier: bool
    """Whether the copier is fencepost's own client, as a member of a consumer group."""
    partitions: int
    freezes: float
    """The probability that a program stands still at one of its steps."""
    impatience: float
    """The probability that a program goes away when its commit is not answered at once."""
    flush_seconds: float
    events: tuple[Event, ...]

    @classmethod
    def of(cls, random: Random, version: int | None) -> "Plan":
        """The plan of a seed; `version` forces every client to one protocol."""
        seconds = random.uniform(2.0, 6.0)
        storm = random.random() < 0.1
        kinds, count = (STORM, random.randint(6, 10)) if storm else (KINDS, random.choice((0, 1, 2, 3, 4)))
        versions = (2, 2, 2, 1)
        writers = tuple(version or random.choice(versions) for _ in range(random.randint(1, 3)))
        return cls(
            seconds=seconds,
            versions=writers,
            transactions=random.randint(3, 12),
            own_client=random.random() < 0.4 and version != 1,
            copier=(version or random.choice(versions)) if random.random() < 0.6 else None,
            own_copier=random.random() < 0.3 and version != 1,
            partitions=random.randint(1, 3),
            freezes=random.choice((0.0, 0.02, 0.1)),
            impatience=random.choice((0.0, 0.2, 0.6)),
            flush_seconds=random.choice((0.0005, 0.003, 0.02)),
            events=tuple(_event(random, seconds, kinds) for _ in range(count)),
        )


def _event(random: Random, seconds: float, kinds: Sequence[Kind]) -> Event:
    kind = random.choice(kinds)
    return Event(
        at_seconds=random.uniform(0.1, seconds),
        kind=kind,
        after_calls=random.randint(1, 30),
        after_passes=random.choice((0, 0, 1, 2, 3, 5, 8, 13)),
        amid_flushes=random.random() < 0.5,
        amount=random.choice((-3600.0, 3600.0)) if kind == "clock jump" else random.uniform(0.1, 2.0),
        down_seconds=random.choice((0.0, 0.1, 1.0)),
    )
