"""The `uniform` assignor, the default: balance first, then stickiness.

If all members subscribe to the same topics, no member has more than one partition more than another, and no partition
moves unnecessarily. For mixed subscriptions see `mixed.py`.
"""

from collections.abc import Iterator

from fencepost.coordinator.group.assignors.mixed import MixedAssignment
from fencepost.coordinator.group.assignors.spec import Assignment, Assignments, GroupSpec


def assign(spec: GroupSpec) -> Assignments:
    """The target assignment of each member."""
    if not spec.members:
        return {}
    return _assign_same(spec) if spec.homogeneous else MixedAssignment(spec).build()


def _assign_same(spec: GroupSpec) -> Assignments:
    topic_ids = next(iter(spec.members.values())).topic_ids
    if not topic_ids:
        return {}
    total = sum(spec.partitions[topic_id] for topic_id in topic_ids)
    least, extra = divmod(total, len(spec.members))
    free = [
        (topic_id, partition)
        for topic_id in sorted(topic_ids)
        for partition in range(spec.partitions[topic_id])
        if partition not in spec.owners.get(topic_id, {})
    ]
    assigned: Assignments = {}
    unfilled: list[tuple[str, int]] = []
    for position, (member_id, member) in enumerate(spec.members.items()):
        quota = least + (position < extra)
        kept, left, given_up = _keep(member.assignment, topic_ids, quota)
        assigned[member_id] = kept
        free += given_up
        if left:
            unfilled.append((member_id, left))
    rest = iter(free)
    for member_id, left in unfilled:
        assigned[member_id] = _with(assigned[member_id], rest, left)
    assert next(rest, None) is None, "the quotas add up to the number of partitions"
    return assigned


def _keep(
    assignment: Assignment, topic_ids: frozenset[bytes], quota: int
) -> tuple[Assignment, int, list[tuple[bytes, int]]]:
    """The partitions that a member keeps, how many more it may get, and the partitions that it gives up."""
    kept: dict[bytes, frozenset[int]] = {}
    given_up: list[tuple[bytes, int]] = []
    for topic_id, partitions in assignment.items():
        if topic_id not in topic_ids:
            continue
        ordered = sorted(partitions)
        if quota:
            kept[topic_id] = frozenset(ordered[:quota])
        given_up += [(topic_id, partition) for partition in ordered[quota:]]
        quota = max(quota - len(ordered), 0)
    return kept, quota, given_up


def _with(assignment: Assignment, free: Iterator[tuple[bytes, int]], size: int) -> Assignment:
    grown = {topic_id: set(partitions) for topic_id, partitions in assignment.items()}
    for _, (topic_id, partition) in zip(range(size), free, strict=False):
        grown.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in grown.items()}
