"""What members of a group were told and gave up, what they committed and read back; and what of it can not be right.

Three rules, each by what clients know, not by what the broker thinks:

1. No partition is owned by two members at once. In one generation never; across generations only where the older owner
   can have been given up: nothing was heard of it for a session or a rebalance timeout, or its static place was taken.
2. A committed offset never goes back: what is read is no less than what was acknowledged or read before.
3. A zombie's commit is refused: none is acknowledged that was sent when somebody had been told of a newer generation.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import trio


@dataclass
class Holder:
    """One incarnation of a member, as it sees itself."""

    name: str
    instance_id: str | None = None
    generation: int = -1
    partitions: frozenset[int] = frozenset()
    in_touch_at: float = -1.0
    """When it sent what was last answered in a way that says: your generation is the newest."""
    challenged: bool = False
    """Another process asks for its static place: at any moment from now on it may be out."""
    replaced_at: float = math.inf
    """When the one who took its static place was told its assignment. It may take the place back, though."""

    @property
    def replaced(self) -> bool:
        """Whether somebody else has its static place."""
        return self.replaced_at < math.inf


@dataclass(frozen=True)
class Sent:
    """A commit on its way."""

    holder: Holder
    generation: int
    offsets: Mapping[int, int]
    newest: int
    """The newest generation that anybody had been told of when it was sent."""
    replaced: bool


@dataclass
class GroupLedger:
    """The books of one group; `broken` are the rules that were."""

    patience_s: float
    """The shorter one of session and rebalance timeout: so long nobody silent is given up."""
    tell: Callable[[str], None]
    holders: list[Holder] = field(default_factory=list)
    newest: int = 0
    """The newest generation that anybody has an assignment of: it is durable."""
    floor: dict[int, int] = field(default_factory=dict)
    """By partition, the offset below which no read may fall."""
    highest: dict[int, int] = field(default_factory=dict)
    """By partition, the highest offset that anybody ever tried to commit."""
    broken: list[str] = field(default_factory=list)
    commits: int = 0
    refused: int = 0
    """Commits of members that were not members any more."""
    handed_over: int = 0

    def _wrong(self, what: str) -> None:
        self.broken.append(f"{trio.current_time():.3f} {what}")
        self.tell(f"WRONG: {what}")

    def joining(self, holder: Holder) -> None:
        """A member is about to ask for a place."""
        if holder.instance_id is not None:
            for other in self.holders:
                other.challenged |= other is not holder and other.instance_id == holder.instance_id

    def told(self, holder: Holder, generation: int, partitions: Collection[int], sent_at: float) -> None:
        """A member has its assignment (SyncGroup), and owns it from now on."""
        if holder not in self.holders:
            self.holders.append(holder)
        self.newest = max(self.newest, generation)
        if sent_at > holder.replaced_at:
            holder.replaced_at, holder.challenged = math.inf, False
        for other in self.holders:
            if other is holder:
                continue
            if other.instance_id is not None and other.instance_id == holder.instance_id:
                other.replaced_at = min(other.replaced_at, trio.current_time())
                continue
            if shared := other.partitions & frozenset(partitions):
                self._check_shared(holder, generation, sent_at, other, shared)
        self.handed_over += len(frozenset(partitions) - holder.partitions)
        holder.generation, holder.partitions = generation, frozenset(partitions)
        holder.in_touch_at = max(holder.in_touch_at, sent_at)

    def _check_shared(
        self, holder: Holder, generation: int, sent_at: float, other: Holder, shared: Collection[int]
    ) -> None:
        who = f"{holder.name} (generation {generation}) and {other.name} (generation {other.generation})"
        if generation == other.generation:
            self._wrong(f"{who} both own {sorted(shared)}")
            return
        in_touch_at = other.in_touch_at if other.generation < generation else sent_at
        silent_s = trio.current_time() - in_touch_at
        if silent_s < self.patience_s and not (other.challenged or holder.challenged):
            self._wrong(f"{who} both own {sorted(shared)}, and the older one was in touch {silent_s:.3f} s ago")

    def gave_up(self, holder: Holder, partitions: Collection[int] | None = None) -> None:
        """A member owns these no more; all of them where none are named. A dead one does so, too."""
        holder.partitions = frozenset() if partitions is None else holder.partitions - frozenset(partitions)

    def in_touch(self, holder: Holder, sent_at: float) -> None:
        """A heartbeat that was sent at this time was answered: no rebalance."""
        holder.in_touch_at = max(holder.in_touch_at, sent_at)

    def sending(self, holder: Holder, generation: int, offsets: Mapping[int, int]) -> Sent:
        """A member is about to commit."""
        for partition, offset in offsets.items():
            self.highest[partition] = max(self.highest.get(partition, 0), offset)
        return Sent(holder, generation, dict(offsets), self.newest, holder.replaced)

    def acknowledged(self, sent: Sent) -> None:
        """A commit was answered with NONE."""
        self.commits += 1
        if sent.newest > sent.generation:
            self._wrong(
                f"a commit of {sent.holder.name} in generation {sent.generation} is acknowledged,"
                f" and generation {sent.newest} had assignments when it was sent"
            )
        if sent.replaced:
            self._wrong(f"a commit of {sent.holder.name} is acknowledged after its static place was taken")
        for partition, offset in sent.offsets.items():
            self.floor[partition] = max(self.floor.get(partition, 0), offset)

    def read(self, who: str, floor: Mapping[int, int], found: Mapping[int, int]) -> None:
        """Committed offsets were read; `floor` is a copy of `self.floor` from before the question."""
        for partition, offset in found.items():
            least, most = floor.get(partition, 0), self.highest.get(partition, 0)
            if max(offset, 0) < least:
                self._wrong(f"{who} reads offset {offset} of partition {partition}, which was at {least} before")
            if offset > most:
                self._wrong(f"{who} reads offset {offset} of partition {partition}, and nobody ever committed that")
            self.floor[partition] = max(self.floor.get(partition, 0), offset)
