"""What the books of a group have in common, whatever its protocol: who is in it, and which offsets are committed.

A committed offset never goes back, and never past what somebody has processed. A zombie's commit is refused.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import trio

from fencepost.protocol.topics import TopicPartition
from tests.simulation.group_base import GroupOutcome


@dataclass(eq=False)
class Owner:
    """One process, as it sees itself."""

    name: str
    instance_id: str | None = None
    classic: bool = True
    owned: dict[TopicPartition, float] = field(default_factory=dict)
    """What it reads, and when it asked for what was answered with that."""
    epoch: int = 0
    """Member epoch or generation; 0 while it is in no group."""
    in_touch_at: float = -1.0
    """When it sent what was last answered in a way that says: you are a member, and have nothing to give back."""
    challenged: bool = False
    """Another process asks for its static place, and gets it without asking: from now on this one may be out."""

    def __str__(self) -> str:
        return f"{self.name} (epoch {self.epoch}): {named(self.owned)}"


W = TypeVar("W", bound=Owner)


@dataclass(frozen=True)
class Sent:
    """A commit on its way; `wrong` is what would be wrong if it counted."""

    offsets: Mapping[TopicPartition, int]
    wrong: Collection[str]


class OffsetBooks(Generic[W]):
    """The books of one group. What is broken goes to the outcome, and to the trace by `tell`."""

    def __init__(self, outcome: GroupOutcome, tell: Callable[[str], None]) -> None:
        self.owners: list[W] = []
        self.newest = 0
        """The newest epoch or generation that anybody was told of: it is durable."""
        self.floor: dict[TopicPartition, int] = {}
        """The offset below which no read may fall."""
        self.outcome = outcome
        self._tell = tell
        self._highest: dict[TopicPartition, int] = {}
        """The highest offset that anybody ever tried to commit."""

    def _wrong(self, what: str) -> None:
        self.outcome.broken.append(f"{trio.current_time():.3f} {what}")
        self._tell(f"WRONG: {what}")

    def joining(self, owner: W) -> None:
        """A process is about to ask for a place. Between two of the consumer protocol the former one stays."""
        if owner.instance_id is not None:
            for other in self.owners:
                if other is not owner and other.instance_id == owner.instance_id and (owner.classic or other.classic):
                    other.challenged = True

    def in_touch(self, owner: Owner, sent_at: float) -> None:
        """What was sent then was answered: it is a member, and nothing is wanted of it."""
        owner.in_touch_at = max(owner.in_touch_at, sent_at)

    def gave_up(self, owner: Owner, partitions: Collection[TopicPartition] | None = None) -> None:
        """A process reads these no more; nothing at all where none are named, as when it is dead."""
        for partition in list(owner.owned) if partitions is None else partitions:
            owner.owned.pop(partition, None)

    def sending(self, owner: W, epoch: int, offsets: Mapping[TopicPartition, int]) -> Sent:
        """A member is about to commit."""
        for partition, offset in offsets.items():
            self._highest[partition] = max(self._highest.get(partition, 0), offset)
        return Sent(dict(offsets), list(self.why_stale(owner, epoch, offsets)))

    def why_stale(self, owner: W, epoch: int, partitions: Collection[TopicPartition]) -> Iterable[str]:
        """Why a commit that this one sends now must not count."""
        raise NotImplementedError

    def acknowledged(self, sent: Sent) -> None:
        """A commit counts."""
        self.outcome.commits += 1
        for what in sent.wrong:
            self._wrong(what)
        for partition, offset in sent.offsets.items():
            self.floor[partition] = max(self.floor.get(partition, 0), offset)

    def read(self, who: str, floor: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int]) -> None:
        """Committed offsets were read; `floor` is a copy of `self.floor` from before the question."""
        for partition, offset in found.items():
            least, most = floor.get(partition, 0), self._highest.get(partition, 0)
            if max(offset, 0) < least:
                self._wrong(f"{who} reads offset {offset} of {partition}, which was at {least} before")
            if offset > most:
                self._wrong(f"{who} reads offset {offset} of {partition}, and nobody has processed that")
            self.floor[partition] = max(self.floor.get(partition, 0), offset)


def named(partitions: Iterable[TopicPartition]) -> str:
    """For people."""
    return ", ".join(str(one) for one in sorted(partitions)) or "nothing"
