"""The `range` assignor: each subscriber of a topic gets a range of its partitions.

Topics with the same number of partitions are cut at the same places, so that members with the same subscriptions get
the same partitions of each (co-partitioning). Static members come first, by instance id, so that restarts move nothing.
"""

from fencepost.coordinator.group.assignors.spec import Assignments, GroupSpec


def assign(spec: GroupSpec) -> Assignments:
    """Cut every topic into ranges; if the number does not divide, the first ranges are one longer."""
    order = sorted(spec.members, key=lambda member_id: _place(spec, member_id))
    subscribers: dict[bytes, int] = {}
    for member in spec.members.values():
        for topic_id in member.topic_ids:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
    taken = dict.fromkeys(subscribers, 0)
    served = dict.fromkeys(subscribers, 0)
    assigned: Assignments = {}
    for member_id in order:
        ranges: dict[bytes, frozenset[int]] = {}
        for topic_id in sorted(spec.members[member_id].topic_ids):
            least, extra = divmod(spec.partitions[topic_id], subscribers[topic_id])
            size = least + (served[topic_id] < extra)
            if size:
                ranges[topic_id] = frozenset(range(taken[topic_id], taken[topic_id] + size))
            taken[topic_id] += size
            served[topic_id] += 1
        assigned[member_id] = ranges
    return assigned


def _place(spec: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = spec.members[member_id].instance_id
    return instance_id is None, instance_id or member_id
