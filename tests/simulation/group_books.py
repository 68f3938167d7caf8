"""What members of a group of either protocol own, committed and wrote, by what they were told; what cannot be right.

1. No partition is owned by two members at once. A member owns from the answer that gives until it puts down, which it
   does before it says so. Only one that was silent for a session or a rebalance timeout can have been put out.
2. A committed offset never goes back, and never past what somebody has processed.
3. A zombie's commit is refused: none counts that was sent when another member had been given the partition since.
4. Epochs never go back, over no restart of the broker either, while somebody is in the group.
5. With offsets in transactions every record is processed once: as many outputs as the committed offset says, each once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import trio

from fencepost.protocol.topics import TopicPartition
from tests.simulation.group_base import PATIENCE_S
from tests.simulation.group_offsets import OffsetBooks, Owner, named


@dataclass(eq=False)
class Reader(Owner):
    """One process, as it sees itself."""

    told_at: float = -1.0
    """When it asked for what it was told last about its partitions."""
    leaves: bool = False


class Books(OffsetBooks[Reader]):
    """The books of one group; its owners are all processes that ever were."""

    def _silent_s(self, owner: Reader) -> float:
        return trio.current_time() - owner.in_touch_at

    def born(self, owner: Reader) -> None:
        """A process begins."""
        self.owners.append(owner)

    # Epochs

    def in_epoch(self, owner: Reader, epoch: int, newest: int, sent_at: float) -> None:
        """A member was told its epoch, or its generation; `newest` is `self.newest` from before it asked.

        With classic members it counts how new that is now: between question and answer an empty group may have changed
        its protocol, and somebody else have been told of its new epochs.
        """
        owner.told_at = sent_at
        least = owner.epoch or (min(newest, self.newest) if any(one.classic for one in self.owners) else newest)
        if epoch < least and (owner.epoch or self._somebody_else_is_in(owner)):
            self._wrong(f"{owner.name} is told of epoch {epoch} after epoch {least}")
        owner.epoch = epoch
        self.newest = max(self.newest, epoch) if self._somebody_else_is_in(owner) else epoch

    def _somebody_else_is_in(self, owner: Reader) -> bool:
        """Surely: an empty group that changes its protocol begins with new epochs."""
        others = (one for one in self.owners if one is not owner and one.epoch and not one.leaves)
        return any(self._silent_s(one) < PATIENCE_S and not one.challenged for one in others)

    def out(self, owner: Reader) -> None:
        """It learned that it is no member any more."""
        owner.epoch = 0

    # Owners

    def took(self, owner: Reader, partitions: Collection[TopicPartition]) -> None:
        """A member was given these, and reads them from now on.

        One that was frozen meanwhile hears what was true then: it is a zombie, until it asks again.
        """
        is_late = trio.current_time() - owner.told_at >= PATIENCE_S or owner.challenged
        for other in self.owners:
            shared = other.owned.keys() & set(partitions)
            if other is owner or not shared or is_late:
                continue
            if self._silent_s(other) < PATIENCE_S and not other.challenged:
                which = f"{named(shared)}, which {other.name} (epoch {other.epoch}) owns"
                silent = f"that one was in touch {self._silent_s(other):.3f} s ago"
                self._wrong(f"{owner.name} (epoch {owner.epoch}) takes {which}; {silent}")
        owner.owned.update(dict.fromkeys(partitions, owner.told_at))
        self.outcome.handed_over += len(partitions)

    def why_stale(self, owner: Reader, epoch: int, partitions: Collection[TopicPartition]) -> Iterable[str]:
        for partition in partitions:
            since = owner.owned.get(partition, -1.0)
            for other in self.owners:
                if other is not owner and other.owned.get(partition, -1.0) > since:
                    yield f"a commit of {owner.name} for {partition} is acknowledged after {other.name} was given that"

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
    return f"{partition}@{offset}"
