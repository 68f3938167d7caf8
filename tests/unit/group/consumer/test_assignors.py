"""The server-side assignors: balance, stickiness, ranges (G4); the cases of Kafka's own assignor tests."""

import random

import pytest

from fencepost.coordinator.group.assignors import range_assignor, uniform
from fencepost.coordinator.group.assignors.spec import Assignments, Assignor, GroupSpec, MemberSpec
from tests.unit.group.consumer.kit import assignment, shares, topic_id

Members = dict[str, tuple[str, dict[bytes, frozenset[int]]]]


def spec(partitions: dict[str, int], members: Members, *, same: bool = True, **instances: str) -> GroupSpec:
    """A group; each member has the letters of its topics and what it was to have so far."""
    specs = {
        name: MemberSpec(instances.get(name), frozenset(topic_id(letter) for letter in letters), had)
        for name, (letters, had) in members.items()
    }
    owners: dict[bytes, dict[int, str]] = {}
    for name, member in specs.items():
        for topic, numbers in member.assignment.items():
            owners.setdefault(topic, {}).update(dict.fromkeys(numbers, name))
    return GroupSpec(specs, same, owners, {topic_id(letter): size for letter, size in partitions.items()})


@pytest.mark.parametrize("assign", [uniform.assign, range_assignor.assign])
def test_no_members_and_no_topics_g4(assign: Assignor) -> None:
    assert not assign(spec({}, {}))
    assert not any(assign(spec({}, {"a": ("", {})})).values())


class TestUniform:
    def test_partitions_of_all_topics_are_shared_evenly_g4(self) -> None:
        found = uniform.assign(spec({"t": 3, "u": 2}, {"a": ("tu", {}), "b": ("tu", {})}))
        assert sorted(shares(found).values()) == [2, 3]

    def test_more_members_than_partitions_g4(self) -> None:
        found = uniform.assign(spec({"t": 2}, {"a": ("t", {}), "b": ("t", {}), "c": ("t", {})}))
        assert sorted(shares(found).values()) == [0, 1, 1]

    def test_a_newcomer_gets_only_what_is_too_much_for_others_g4(self) -> None:
        before: Members = {"a": ("t", assignment(t=(0, 1, 2))), "b": ("t", assignment(t=(3, 4, 5)))}
        found = uniform.assign(spec({"t": 6}, {**before, "c": ("t", {})}))
        assert found["a"][topic_id("t")] == {0, 1}
        assert found["b"][topic_id("t")] == {3, 4}
        assert found["c"][topic_id("t")] == {2, 5}

    def test_who_stays_keeps_all_when_another_one_goes_g4(self) -> None:
        found = uniform.assign(spec({"t": 4}, {"a": ("t", assignment(t=(0, 1)))}))
        assert found == {"a": assignment(t=(0, 1, 2, 3))}

    def test_new_partitions_move_no_old_ones_g4(self) -> None:
        before: Members = {"a": ("t", assignment(t=(0, 2))), "b": ("t", assignment(t=(1,)))}
        found = uniform.assign(spec({"t": 5}, before))
        assert found["a"][topic_id("t")] >= {0, 2}
        assert found["b"][topic_id("t")] >= {1}

    def test_a_topic_given_up_goes_from_everybody_g4(self) -> None:
        before: Members = {"a": ("t", assignment(t=(0,), u=(0, 1))), "b": ("t", assignment(t=(1,)))}
        found = uniform.assign(spec({"t": 2}, before))
        assert found == {"a": assignment(t=(0,)), "b": assignment(t=(1,))}


class TestUniformOfMixedSubscriptions:
    def test_each_topic_goes_to_its_own_subscribers_g4(self) -> None:
        members: Members = {"a": ("t", {}), "b": ("tu", {}), "c": ("u", {})}
        found = uniform.assign(spec({"t": 2, "u": 2}, members, same=False))
        assert topic_id("u") not in found["a"]
        assert topic_id("t") not in found["c"]
        assert sum(shares(found).values()) == 4

    def test_who_has_the_only_claim_to_much_is_spared_elsewhere_g4(self) -> None:
        found = uniform.assign(spec({"t": 4, "u": 4}, {"a": ("tu", {}), "b": ("u", {})}, same=False))
        assert found["a"] == assignment(t=(0, 1, 2, 3))
        assert found["b"] == assignment(u=(0, 1, 2, 3))

    def test_what_is_balanced_does_not_move_g4(self) -> None:
        before: Members = {"a": ("tu", assignment(t=(0, 1))), "b": ("u", assignment(u=(0, 1)))}
        found = uniform.assign(spec({"t": 2, "u": 2}, before, same=False))
        assert found == {"a": assignment(t=(0, 1)), "b": assignment(u=(0, 1))}

    def test_partitions_move_from_the_most_loaded_to_the_least_g4(self) -> None:
        before: Members = {"a": ("tu", assignment(t=(0, 1, 2, 3), u=(0,))), "b": ("tu", {}), "c": ("u", {})}
        found = uniform.assign(spec({"t": 4, "u": 1}, before, same=False))
        assert shares(found) == {"a": 2, "b": 2, "c": 1}

    def test_a_topic_with_one_subscriber_is_its_own_g4(self) -> None:
        members: Members = {"a": ("tv", {}), "b": ("tu", {}), "c": ("t", {})}
        found = uniform.assign(spec({"t": 3, "u": 3, "v": 3}, members, same=False))
        assert found["a"][topic_id("v")] == found["b"][topic_id("u")] == {0, 1, 2}
        assert found["c"] == assignment(t=(0, 1, 2))


class TestRange:
    def test_neighbours_go_together_and_the_first_get_one_more_g4(self) -> None:
        found = range_assignor.assign(spec({"t": 3, "u": 4}, {"b": ("tu", {}), "a": ("tu", {})}))
        assert found == {"a": assignment(t=(0, 1), u=(0, 1)), "b": assignment(t=(2,), u=(2, 3))}

    def test_topics_of_one_size_are_cut_alike_g4(self) -> None:
        members: Members = {name: ("tu", {}) for name in "abc"}
        found = range_assignor.assign(spec({"t": 7, "u": 7}, members))
        assert all(ranges[topic_id("t")] == ranges[topic_id("u")] for ranges in found.values())

    def test_static_members_come_first_by_instance_id_g4(self) -> None:
        members: Members = {"a": ("t", {}), "y": ("t", {}), "z": ("t", {})}
        found = range_assignor.assign(spec({"t": 3}, members, y="2", z="1"))
        assert found == {"z": assignment(t=(0,)), "y": assignment(t=(1,)), "a": assignment(t=(2,))}

    def test_mixed_subscriptions_share_each_topic_among_its_own_g4(self) -> None:
        members: Members = {"a": ("t", {}), "b": ("tu", {})}
        found = range_assignor.assign(spec({"t": 3, "u": 2}, members, same=False))
        assert found == {"a": assignment(t=(0, 1)), "b": assignment(t=(2,), u=(0, 1))}

    def test_more_members_than_partitions_g4(self) -> None:
        found = range_assignor.assign(spec({"t": 1}, {"a": ("t", {}), "b": ("t", {})}))
        assert found == {"a": assignment(t=(0,)), "b": {}}


def checked(found: Assignments, asked: GroupSpec) -> None:
    """Every partition of a subscribed topic is given once, to one who subscribes to it."""
    given = [
        (topic, partition)
        for member_id, topics in found.items()
        for topic, partitions in topics.items()
        for partition in partitions
        if topic in asked.members[member_id].topic_ids
    ]
    wanted = {topic for member in asked.members.values() for topic in member.topic_ids}
    assert sorted(given) == sorted((topic, n) for topic in wanted for n in range(asked.partitions[topic]))


@pytest.mark.parametrize("seed", range(200))
def test_whatever_the_group_was_each_partition_has_one_owner_g4(seed: int) -> None:
    chance = random.Random(seed)
    partitions = {letter: chance.randint(1, 9) for letter in "tuvw"[: chance.randint(1, 4)]}
    same = chance.random() < 0.5
    wanted = "".join(letter for letter in partitions if chance.random() < 0.7)
    had: Assignments = {}
    for size in [chance.randint(1, 7) for _ in range(5)]:
        members: Members = {}
        for number in range(size):
            name = f"m{number}"
            mine = wanted if same else "".join(letter for letter in partitions if chance.random() < 0.6)
            members[name] = (mine, dict(had.get(name, {})))
        asked = spec(partitions, members, same=same)
        checked(range_assignor.assign(asked), asked)
        had = uniform.assign(asked)
        checked(had, asked)
        if same and had:
            assert max(shares(had).values()) - min(shares(had).values()) <= 1
