"""The balanced assignment that moves as few partitions as possible, for sticky and cooperative-sticky.

Balanced means: no chain of moves would take a partition from a member to one that has at least two fewer. Where all
members want the same topics, no member then has two more than another, and as many partitions stay where they are as
any balanced assignment allows.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fencepost.client.core.consumer_protocol import UNKNOWN_GENERATION
from fencepost.protocol.topics import TopicPartition


class Member(NamedTuple):
    """One member as the leader sees it: its topics, the partitions it owns, and since which generation."""

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
    """Assign the partitions of `counts` (partitions by topic); the result by member id, partitions sorted."""
    ordered = sorted(members, key=lambda member: member.order)
    wanted = {topic for member in ordered for topic in member.topics}
    partitions = [TopicPartition(t, p) for t in sorted(counts) if t in wanted for p in range(counts[t])]
    if not ordered:
        return {}
    held = _valid_ownership(ordered, counts)
    if all(member.topics == ordered[0].topics for member in ordered):
        _assign_evenly(ordered, partitions, held)
    else:
        _Balancer(ordered, partitions, held).run()
    return {member.member_id: sorted(held[member.member_id]) for member in ordered}


def _valid_ownership(ordered: Sequence[Member], counts: Mapping[str, int]) -> dict[str, set[TopicPartition]]:
    """Owned partitions by member: of two owners the one of the later generation; neither if equal (KIP-792)."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in ordered:
        for partition in member.owned:
            if partition.topic not in member.topics or not 0 <= partition.partition < counts.get(partition.topic, 0):
                continue
            generation, _ = best.get(partition, (UNKNOWN_GENERATION - 1, None))
            if member.generation > generation:
                best[partition] = (member.generation, member.member_id)
            elif member.generation == generation:
                best[partition] = (generation, None)
    held: dict[str, set[TopicPartition]] = {member.member_id: set() for member in ordered}
    for partition, (_, owner) in best.items():
        if owner is not None:
            held[owner].add(partition)
    return held


def _assign_evenly(
    ordered: Sequence[Member], partitions: Sequence[TopicPartition], held: dict[str, set[TopicPartition]]
) -> None:
    """All members want the same topics: those with the most partitions keep the remainder."""
    low, larger = divmod(len(partitions), len(ordered))
    ranked = sorted(ordered, key=lambda member: -len(held[member.member_id]))
    quota = {member.member_id: low + (place < larger) for place, member in enumerate(ranked)}
    kept: set[TopicPartition] = set()
    for member in ordered:
        own = held[member.member_id] = set(sorted(held[member.member_id])[: quota[member.member_id]])
        kept |= own
    free = deque(partition for partition in partitions if partition not in kept)
    below_quota = deque(member.member_id for member in ordered)
    while free:
        member_id = below_quota.popleft()
        if len(held[member_id]) < quota[member_id]:
            held[member_id].add(free.popleft())
            below_quota.append(member_id)


class _Balancer:
    """Members want different topics: assign free partitions to the least loaded, then move others along chains."""

    def __init__(
        self, ordered: Sequence[Member], partitions: Sequence[TopicPartition], held: dict[str, set[TopicPartition]]
    ) -> None:
        self._held = held
        self._partitions = partitions
        self._place = {member.member_id: place for place, member in enumerate(ordered)}
        self._readers: dict[str, list[str]] = {}
        for member in ordered:
            for topic in member.topics:
                self._readers.setdefault(topic, []).append(member.member_id)

    def run(self) -> None:
        """Assign, then balance: first with free partitions, and only then with owned ones.

        So partitions that one cooperative rebalance revokes go, in the next one, to the member that it chose.
        """
        owned = {partition for all_ in self._held.values() for partition in all_}
        free = [partition for partition in self._partitions if partition not in owned]
        for partition in sorted(free, key=lambda one: len(self._readers[one.topic])):
            self._held[min(self._readers[partition.topic], key=self._load)].add(partition)
        self._balance(frozenset(free))
        self._balance(frozenset(self._partitions))

    def _balance(self, movable: frozenset[TopicPartition]) -> None:
        """Move partitions until no chain is left; each move lowers the sum of squares, so this ends."""
        candidates = set(self._held)
        while candidates:
            most_loaded = max(candidates, key=self._load)
            if self._move_one(most_loaded, movable):
                candidates = set(self._held)
            else:
                candidates.discard(most_loaded)

    def _load(self, member_id: str) -> tuple[int, int]:
        return len(self._held[member_id]), self._place[member_id]

    def _move_one(self, donor: str, movable: frozenset[TopicPartition]) -> bool:
        """Move one partition from `donor` along the shortest chain to a member with at least two fewer, if any."""
        reached_by: dict[str, tuple[str, TopicPartition]] = {}
        seen, line = {donor}, deque([donor])
        target = len(self._held[donor]) - 2
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
                for reader in sorted(self._readers[topic], key=self._load):
                    if reader in seen:
                        continue
                    seen.add(reader)
                    reached_by[reader] = (holder, partition)
                    if len(self._held[reader]) <= target:
                        self._move_along(reader, reached_by, donor)
                        return True
                    line.append(reader)
        return False

    def _move_along(self, receiver: str, reached_by: Mapping[str, tuple[str, TopicPartition]], donor: str) -> None:
        while receiver != donor:
            holder, partition = reached_by[receiver]
            self._held[holder].discard(partition)
            self._held[receiver].add(partition)
            receiver = holder
