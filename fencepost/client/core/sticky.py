"""The balanced assignment that moves as little as possible, for the sticky and the cooperative-sticky assignor.

Balanced means: no chain of hand-overs would take a partition from a member to one that has at least two fewer. Where
all members want the same topics, that is the same as "nobody has two more than another", and then as many partitions
stay where they are as any balanced assignment allows.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fencepost.client.core.consumer_protocol import UNKNOWN_GENERATION
from fencepost.protocol.topics import TopicPartition


class Member(NamedTuple):
    """One member as the leader sees it: what it wants, what it says it has, and since which generation."""

    member_id: str
    instance_id: str | None
    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = UNKNOWN_GENERATION

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first, each kind by name, so that their restarts move nothing."""
        return self.instance_id is None, self.instance_id or self.member_id


def assign(members: Sequence[Member], counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Deal out `counts` (partitions by topic) to those who want them; the result by member id, partitions sorted."""
    circle = sorted(members, key=lambda member: member.order)
    wanted = {topic for member in circle for topic in member.topics}
    partitions = [TopicPartition(t, p) for t in sorted(counts) if t in wanted for p in range(counts[t])]
    if not circle:
        return {}
    held = _valid_claims(circle, counts)
    if all(member.topics == circle[0].topics for member in circle):
        _deal_evenly(circle, partitions, held)
    else:
        _Deal(circle, partitions, held).run()
    return {member.member_id: sorted(held[member.member_id]) for member in circle}


def _valid_claims(circle: Sequence[Member], counts: Mapping[str, int]) -> dict[str, set[TopicPartition]]:
    """Who has what: of two that claim one partition, the later generation; none, if that does not tell (KIP-792)."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in circle:
        for partition in member.owned:
            if partition.topic not in member.topics or not 0 <= partition.partition < counts.get(partition.topic, 0):
                continue
            generation, _ = best.get(partition, (UNKNOWN_GENERATION - 1, None))
            if member.generation > generation:
                best[partition] = (member.generation, member.member_id)
            elif member.generation == generation:
                best[partition] = (generation, None)
    held: dict[str, set[TopicPartition]] = {member.member_id: set() for member in circle}
    for partition, (_, owner) in best.items():
        if owner is not None:
            held[owner].add(partition)
    return held


def _deal_evenly(
    circle: Sequence[Member], partitions: Sequence[TopicPartition], held: dict[str, set[TopicPartition]]
) -> None:
    """All want the same: those who have most may have the one that is left over."""
    low, larger = divmod(len(partitions), len(circle))
    ranked = sorted(circle, key=lambda member: -len(held[member.member_id]))
    quota = {member.member_id: low + (place < larger) for place, member in enumerate(ranked)}
    kept: set[TopicPartition] = set()
    for member in circle:
        own = held[member.member_id] = set(sorted(held[member.member_id])[: quota[member.member_id]])
        kept |= own
    free = deque(partition for partition in partitions if partition not in kept)
    hungry = deque(member.member_id for member in circle)
    while free:
        member_id = hungry.popleft()
        if len(held[member_id]) < quota[member_id]:
            held[member_id].add(free.popleft())
            hungry.append(member_id)


class _Deal:
    """Members want different topics: give what nobody has to the poorest, then hand over along chains."""

    def __init__(
        self, circle: Sequence[Member], partitions: Sequence[TopicPartition], held: dict[str, set[TopicPartition]]
    ) -> None:
        self._held = held
        self._partitions = partitions
        self._place = {member.member_id: place for place, member in enumerate(circle)}
        self._readers: dict[str, list[str]] = {}
        for member in circle:
            for topic in member.topics:
                self._readers.setdefault(topic, []).append(member.member_id)

    def run(self) -> None:
        """Fill, then level: first with what nobody had, and only then with what has an owner.

        So what a cooperative round has taken off its owners goes, in the next one, where the first wanted it.
        """
        owned = {partition for all_ in self._held.values() for partition in all_}
        free = [partition for partition in self._partitions if partition not in owned]
        for partition in sorted(free, key=lambda one: len(self._readers[one.topic])):
            self._held[min(self._readers[partition.topic], key=self._wealth)].add(partition)
        self._level(frozenset(free))
        self._level(frozenset(self._partitions))

    def _level(self, movable: frozenset[TopicPartition]) -> None:
        """Hand over until no chain is left; each one lowers the sum of squares, so this ends."""
        level = set(self._held)
        while level:
            richest = max(level, key=self._wealth)
            if self._give_away(richest, movable):
                level = set(self._held)
            else:
                level.discard(richest)

    def _wealth(self, member_id: str) -> tuple[int, int]:
        return len(self._held[member_id]), self._place[member_id]

    def _give_away(self, giver: str, movable: frozenset[TopicPartition]) -> bool:
        """Take one partition off `giver` along the shortest chain to a member with at least two fewer, if any."""
        came_by: dict[str, tuple[str, TopicPartition]] = {}
        seen, line = {giver}, deque([giver])
        target = len(self._held[giver]) - 2
        if target < min(map(len, self._held.values())):
            return False
        while line:
            holder = line.popleft()
            lowest: dict[str, TopicPartition] = {}
            for partition in self._held[holder] & movable:
                known = lowest.get(partition.topic)
                if known is None or partition < known:
                    lowest[partition.topic] = partition
            for topic, partition in sorted(lowest.items()):
                for reader in sorted(self._readers[topic], key=self._wealth):
                    if reader in seen:
                        continue
                    seen.add(reader)
                    came_by[reader] = (holder, partition)
                    if len(self._held[reader]) <= target:
                        self._hand_over(reader, came_by, giver)
                        return True
                    line.append(reader)
        return False

    def _hand_over(self, taker: str, came_by: Mapping[str, tuple[str, TopicPartition]], giver: str) -> None:
        while taker != giver:
            holder, partition = came_by[taker]
            self._held[holder].discard(partition)
            self._held[taker].add(partition)
            taker = holder
