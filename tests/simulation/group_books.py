"""What members of a group of either protocol own, committed and wrote, by what they were told; what can not be right.

1. No partition is owned by two members at once. A member owns from the answer that gives until it puts down, which it
   does before it says so. Only one that was silent for a session or a rebalance timeout can have been put out.
2. A committed offset never goes back, and never past what somebody has processed.
3. A zombie's commit is refused: none counts that was sent when another member had been given the partition since.
4. Epochs never go back, over no restart of the broker either, while somebody is in the group.
5. With offsets in transactions every record is processed once: as many outputs as the committed offset says, each once.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import trio

from fencepost.protocol.topics import TopicPartition


@dataclass(eq=False)
class Owner:
    """One process, as it sees itself."""

    name: str
    instance_id: str | None = None
    classic: bool = False
    owned: dict[TopicPartition, float] = field(default_factory=dict)
    """What it reads, and when it asked for what was answered with that."""
    told_at: float = -1.0
    """When it asked for what it was told last about its partitions."""
    epoch: int = 0
    """Member epoch or generation; 0 while it is in no group."""
    in_touch_at: float = -1.0
    """When it sent what was last answered in a way that says: you are a member, and have nothing to give back."""
    challenged: bool = False
    """Another process asks for its static place, and gets it without asking: from now on this one may be out."""
    leaves: bool = False


@dataclass(frozen=True)
class Sent:
    """A commit on its way."""

    owner: Owner
    offsets: Mapping[TopicPartition, int]
    usurped: Mapping[TopicPartition, str]
    """Who has been given these of its partitions since, when it was sent."""


@dataclass
class Books:
    """The books of one group; `broken` are the rules that were."""

    patience_s: float
    """The shorter one of session and rebalance timeout: so long nobody silent is given up."""
    tell: Callable[[str], None]
    owners: list[Owner] = field(default_factory=list)
    newest: int = 0
    floor: dict[TopicPartition, int] = field(default_factory=dict)
    """The offset below which no read may fall."""
    highest: dict[TopicPartition, int] = field(default_factory=dict)
    """The highest offset that anybody ever tried to commit."""
    broken: list[str] = field(default_factory=list)
    commits: int = 0
    refused: int = 0
    handed_over: int = 0

    def _wrong(self, what: str) -> None:
        self.broken.append(f"{trio.current_time():.3f} {what}")
        self.tell(f"WRONG: {what}")

    def _silent_s(self, owner: Owner) -> float:
        return trio.current_time() - owner.in_touch_at

    def born(self, owner: Owner) -> None:
        """A process begins."""
        self.owners.append(owner)

    def joining(self, owner: Owner) -> None:
        """A process is about to ask for a place. Between two of the consumer protocol the former one stays."""
        if owner.instance_id is not None:
            for other in self.owners:
                if other is not owner and other.instance_id == owner.instance_id and (owner.classic or other.classic):
                    other.challenged = True

    # Epochs

    def in_epoch(self, owner: Owner, epoch: int, newest: int, sent_at: float) -> None:
        """A member was told its epoch, or its generation; `newest` is `self.newest` from before it asked."""
        owner.told_at = sent_at
        least = owner.epoch or newest
        if epoch < least and (owner.epoch or self._somebody_else_is_in(owner)):
            self._wrong(f"{owner.name} is told of epoch {epoch} after epoch {least}")
        owner.epoch = epoch
        self.newest = max(self.newest, epoch) if self._somebody_else_is_in(owner) else epoch

    def _somebody_else_is_in(self, owner: Owner) -> bool:
        """Surely: an empty group that changes its protocol begins with new epochs."""
        others = (one for one in self.owners if one is not owner and one.epoch and not one.leaves)
        return any(self._silent_s(one) < self.patience_s and not one.challenged for one in others)

    def out(self, owner: Owner) -> None:
        """It learned that it is no member any more."""
        owner.epoch = 0

    def in_touch(self, owner: Owner, sent_at: float) -> None:
        """What was sent then was answered: it is a member, and nothing is wanted of it."""
        owner.in_touch_at = max(owner.in_touch_at, sent_at)

    # Owners

    def took(self, owner: Owner, partitions: Collection[TopicPartition]) -> None:
        """A member was given these, and reads them from now on.

        One that was frozen meanwhile hears what was true then: it is a zombie, until it asks again.
        """
        is_late = trio.current_time() - owner.told_at >= self.patience_s or owner.challenged
        for other in self.owners:
            shared = sorted(other.owned.keys() & set(partitions))
            if other is owner or not shared or is_late:
                continue
            if self._silent_s(other) < self.patience_s and not other.challenged:
                told = (
                    f"{owner.name} (epoch {owner.epoch}) takes {shared}, which {other.name} (epoch {other.epoch}) owns"
                )
                self._wrong(f"{told}; that one was in touch {self._silent_s(other):.3f} s ago")
        owner.owned.update(dict.fromkeys(partitions, owner.told_at))
        self.handed_over += len(partitions)

    def gave_up(self, owner: Owner, partitions: Collection[TopicPartition] | None = None) -> None:
        """A process reads these no more; nothing at all where none are named, as when it is dead."""
        for partition in list(owner.owned) if partitions is None else partitions:
            owner.owned.pop(partition, None)

    # Offsets

    def sending(self, owner: Owner, offsets: Mapping[TopicPartition, int]) -> Sent:
        """A member is about to commit."""
        usurped = {}
        for partition, offset in offsets.items():
            self.highest[partition] = max(self.highest.get(partition, 0), offset)
            since = owner.owned.get(partition, -1.0)
            for other in self.owners:
                if other is not owner and other.owned.get(partition, -1.0) > since:
                    usurped[partition] = other.name
        return Sent(owner, dict(offsets), usurped)

    def acknowledged(self, sent: Sent) -> None:
        """A commit counts."""
        self.commits += 1
        for partition, name in sent.usurped.items():
            self._wrong(f"a commit of {sent.owner.name} for {partition} is acknowledged after {name} was given that")
        for partition, offset in sent.offsets.items():
            self.floor[partition] = max(self.floor.get(partition, 0), offset)

    def read(self, who: str, floor: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int]) -> None:
        """Committed offsets were read; `floor` is a copy of `self.floor` from before the question."""
        for partition, offset in found.items():
            least, most = floor.get(partition, 0), self.highest.get(partition, 0)
            if max(offset, 0) < least:
                self._wrong(f"{who} reads offset {offset} of {partition}, which was at {least} before")
            if offset > most:
                self._wrong(f"{who} reads offset {offset} of {partition}, and nobody has processed that")
            self.floor[partition] = max(self.floor.get(partition, 0), offset)

    # Records

    def compare(self, outputs: Iterable[str], committed: Mapping[TopicPartition, int]) -> None:
        """At the end: what was written in committed transactions is what the committed offsets say was read."""
        counted = Counter(outputs)
        expected = {output(partition, at) for partition, offset in committed.items() for at in range(offset)}
        if twice := sorted(name for name, times in counted.items() if times > 1):
            self._wrong(f"processed more than once: {twice[:5]}")
        if missing := sorted(expected - counted.keys()):
            self._wrong(f"committed, and never processed: {missing[:5]}")
        if early := sorted(counted.keys() - expected):
            self._wrong(f"processed, and not committed: {early[:5]}")


def output(partition: TopicPartition, offset: int) -> str:
    """What a member writes for a record."""
    return f"{partition.topic}-{partition.partition}@{offset}"
