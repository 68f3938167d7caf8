"""The assignor of share groups (KIP-932, Kafka's SimpleAssignor): a partition may have several members.

Every partition gets the same number of members, the smallest with which no member is left out. A member keeps as much
as it can of its former target.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from fencepost.coordinator.group.assignors.spec import Assignments, MemberSpec

Partition = tuple[bytes, int]


def assign(
    members: Mapping[str, MemberSpec], homogeneous: bool, assignable: Mapping[bytes, Iterable[int]]
) -> Assignments:
    """The target of each member; `assignable` has the partitions of every topic that a member subscribes to.

    If all members subscribe to the same topics, these are shared as a whole; else each topic by itself.
    """
    given: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
    for topic_ids in [list(assignable)] if homogeneous else [[topic_id] for topic_id in assignable]:
        partitions = [(topic_id, number) for topic_id in topic_ids for number in sorted(assignable[topic_id])]
        former = {
            member_id: member.assignment
            for member_id, member in members.items()
            if homogeneous or member.topic_ids.issuperset(topic_ids)
        }
        for (topic_id, number), names in _share(partitions, former).items():
            for name in names:
                given[name].setdefault(topic_id, set()).add(number)
    return {
        member_id: {topic_id: frozenset(numbers) for topic_id, numbers in topics.items()}
        for member_id, topics in given.items()
    }


def _share(
    partitions: Sequence[Partition], former: Mapping[str, Mapping[bytes, Iterable[int]]]
) -> dict[Partition, list[str]]:
    """The members of each partition; `former` has the members, each with its former target."""
    held: dict[Partition, list[str]] = {partition: [] for partition in partitions}
    if not partitions or not former:
        return held
    sharing = -(-len(former) // len(partitions))
    room = _desired(list(former), sharing * len(partitions))
    for name, topics in former.items():
        for topic_id, numbers in topics.items():
            for number in numbers:
                if (topic_id, number) in held:
                    held[topic_id, number].append(name)
                    room[name] -= 1
    _take_back(held, room, sharing)
    _fill(held, room, sharing)
    return held


def _desired(names: Sequence[str], places: int) -> dict[str, int]:
    """How many of the places each member is to have: as equal as possible, the places spread over the order."""
    count = len(names)
    ends = [-(-places * index // count) for index in range(count + 1)]
    return {name: ends[index + 1] - ends[index] for index, name in enumerate(names)}


def _take_back(held: dict[Partition, list[str]], room: dict[str, int], sharing: int) -> None:
    """Take members from partitions that have too many, then partitions from members that have too many."""
    for names in held.values():
        for name in sorted(names, key=room.__getitem__)[: max(0, len(names) - sharing)]:
            names.remove(name)
            room[name] += 1
    for names in held.values():
        for name in [name for name in names if room[name] < 0]:
            names.remove(name)
            room[name] += 1


def _fill(held: dict[Partition, list[str]], room: dict[str, int], sharing: int) -> None:
    """Give what is missing to the members that have room, in turn."""
    unfilled = deque(name for name, left in room.items() if left > 0)
    for names in held.values():
        for _ in range(len(unfilled)):
            if len(names) >= sharing:
                break
            name = unfilled.popleft()
            if name not in names:
                names.append(name)
                room[name] -= 1
            if room[name] > 0:
                unfilled.append(name)
