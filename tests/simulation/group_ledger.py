"""What members of a group were told and gave up, what they committed and read back; and what of it cannot be right.

Three rules, each by what clients know, not by what the broker thinks:

1. No partition is owned by two members at once. In one generation never; across generations only where the older owner
   can have been given up: nothing was heard of it for a session or a rebalance timeout, or its static place was taken.
2. A committed offset never goes back: what is read is no less than what was acknowledged or read before.
3. A zombie's commit is refused: none is acknowledged that was sent when somebody had been told of a newer generation.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import trio

from fencepost.protocol.topics import TopicPartition
from tests.simulation.group_base import PATIENCE_S
from tests.simulation.group_offsets import OffsetBooks, Owner, named


@dataclass(eq=False)
class Holder(Owner):
    """One incarnation of a member, as it sees itself; its epoch is its generation."""

    replaced_at: float = math.inf
    """When the one who took its static place was told its assignment. It may take the place back, though."""


class GroupLedger(OffsetBooks[Holder]):
    """The books of one group; its owners are those who ever had an assignment."""

    def told(self, holder: Holder, generation: int, partitions: frozenset[TopicPartition], sent_at: float) -> None:
        """A member has its assignment (SyncGroup), and owns it from now on."""
        if holder not in self.owners:
            self.owners.append(holder)
        self.newest = max(self.newest, generation)
        if sent_at > holder.replaced_at:
            holder.replaced_at, holder.challenged = math.inf, False
        for other in self.owners:
            if other is holder:
                continue
            if other.instance_id is not None and other.instance_id == holder.instance_id:
                other.replaced_at = min(other.replaced_at, trio.current_time())
                continue
            if shared := other.owned.keys() & partitions:
                self._check_shared(holder, generation, sent_at, other, named(shared))
        self.outcome.handed_over += len(partitions - holder.owned.keys())
        holder.epoch, holder.owned = generation, dict.fromkeys(partitions, sent_at)
        self.in_touch(holder, sent_at)

    def _check_shared(self, holder: Holder, generation: int, sent_at: float, other: Holder, shared: str) -> None:
        who = f"{holder.name} (generation {generation}) and {other.name} (generation {other.epoch})"
        if generation == other.epoch:
            self._wrong(f"{who} both own {shared}")
            return
        in_touch_at = other.in_touch_at if other.epoch < generation else sent_at
        silent_s = trio.current_time() - in_touch_at
        if silent_s < PATIENCE_S and not (other.challenged or holder.challenged):
            self._wrong(f"{who} both own {shared}, and the older one was in touch {silent_s:.3f} s ago")

    def why_stale(self, owner: Holder, epoch: int, partitions: Collection[TopicPartition]) -> Iterable[str]:
        if self.newest > epoch:
            yield (
                f"a commit of {owner.name} in generation {epoch} is acknowledged,"
                f" and generation {self.newest} had assignments when it was sent"
            )
        if owner.replaced_at < math.inf:
            yield f"a commit of {owner.name} is acknowledged after its static place was taken"
