"""The `uniform` assignor for members with different subscriptions: each topic balanced among its own subscribers.

Members keep their partitions. Each free one goes to the least loaded subscriber, hard topics (many partitions for few
subscribers) first. Then partitions move, topic by topic, from the most to the least loaded subscribers, until each
topic's subscribers are at most one partition apart, or until ROUNDS_MAX. If subscriptions only overlap, the result is
nearly balanced, as Kafka's is.
"""

from fencepost.coordinator.group.assignors.balancer import Balancer
from fencepost.coordinator.group.assignors.spec import Assignment, Assignments, GroupSpec

ROUNDS_MAX = 16
"""Each round about halves the imbalance of overlapping subscriptions; equal ones need one round."""
NO_OWNER = -1


class MixedAssignment:
    """One computation; members are numbered in the order of the group."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._names = list(spec.members)
        self._subscribers: dict[bytes, list[int]] = {}
        for number, member in enumerate(spec.members.values()):
            for topic_id in member.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(number)
        self._owners = {topic_id: [NO_OWNER] * spec.partitions[topic_id] for topic_id in self._subscribers}
        self._loads = [0] * len(self._names)

    def build(self) -> Assignments:
        """Keep the former owners, assign the free partitions, balance."""
        if not self._subscribers:
            return {}
        self._keep()
        self._give_out()
        self._balance()
        return self._assignments()

    def _keep(self) -> None:
        for number, member in enumerate(self._spec.members.values()):
            for topic_id in member.topic_ids & member.assignment.keys():
                partitions = member.assignment[topic_id]
                self._loads[number] += len(partitions)
                for partition in partitions:
                    self._owners[topic_id][partition] = number

    def _hardest_first(self, topic_ids: list[bytes]) -> list[bytes]:
        """Most partitions per subscriber first, then fewest subscribers, then by id."""

        def place(topic_id: bytes) -> tuple[float, int, bytes]:
            subscribers = len(self._subscribers[topic_id])
            return -self._spec.partitions[topic_id] / subscribers, subscribers, topic_id

        return sorted(topic_ids, key=place)

    def _give_out(self) -> None:
        free = [topic_id for topic_id, owners in self._owners.items() if NO_OWNER in owners]
        for topic_id in self._hardest_first(free):
            balancer = Balancer(self._loads, self._subscribers[topic_id])
            for partition, owner in enumerate(self._owners[topic_id]):
                if owner == NO_OWNER:
                    self._move(topic_id, partition, balancer.least_loaded())

    def _move(self, topic_id: bytes, partition: int, member: int) -> None:
        former = self._owners[topic_id][partition]
        if former != NO_OWNER:
            self._loads[former] -= 1
        self._owners[topic_id][partition] = member
        self._loads[member] += 1

    def _balance(self) -> None:
        """Balance each topic in turn until a whole round moved no partition."""
        topics = self._hardest_first([topic_id for topic_id, members in self._subscribers.items() if len(members) > 1])
        last_moved = None
        for _ in range(ROUNDS_MAX):
            for topic_id in topics:
                if topic_id == last_moved:
                    return
                if self._balance_topic(topic_id) or last_moved is None:
                    last_moved = topic_id

    def _balance_topic(self, topic_id: bytes) -> bool:
        """Move partitions of one topic from its most to its least loaded subscribers; return whether any moved."""
        balancer = Balancer(self._loads, self._subscribers[topic_id])
        if balancer.imbalance <= 1:
            return False
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            held.setdefault(owner, []).append(partition)
        moved = False
        while not balancer.is_balanced():
            giver = balancer.most_loaded()
            while giver is not None and not held.get(giver):
                balancer.exclude_most_loaded()
                giver = balancer.most_loaded()
            if giver is None:
                break
            partition = held[giver].pop()
            taker = balancer.least_loaded()
            if balancer.is_balanced():
                break
            self._move(topic_id, partition, taker)
            moved = True
        return moved

    def _assignments(self) -> Assignments:
        collected: list[dict[bytes, set[int]]] = [{} for _ in self._names]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                collected[owner].setdefault(topic_id, set()).add(partition)
        return {name: _frozen(topics) for name, topics in zip(self._names, collected, strict=True)}


def _frozen(topics: dict[bytes, set[int]]) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
