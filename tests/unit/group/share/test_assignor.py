"""The simple assignor: every partition has as many members as every other, and no member is left out (KIP-932)."""

from itertools import product

import pytest

from fencepost.coordinator.group.assignors import simple
from fencepost.coordinator.group.assignors.spec import Assignment, MemberSpec
from tests.unit.group.share.kit import topic_id


def members(count: int, former: dict[str, Assignment], *topics: str) -> dict[str, MemberSpec]:
    ids = frozenset(map(topic_id, topics))
    return {f"m{number}": MemberSpec(None, ids, former.get(f"m{number}", {})) for number in range(count)}


@pytest.mark.parametrize(("count", "partitions"), [*product(range(1, 9), range(1, 6))])
def test_places_are_shared_evenly_also_after_members_came_and_left_g4(count: int, partitions: int) -> None:
    former: dict[str, Assignment] = {}
    for present in (count, count + 3, count):
        former = simple.assign(members(present, former, "t"), True, {topic_id("t"): range(partitions)})
        held = [sorted(one.get(topic_id("t"), ())) for one in former.values()]
        sharing = -(-present // partitions)
        assert sorted(sum(held, [])) == sorted([*range(partitions)] * sharing)  # noqa: RUF017
        assert max(map(len, held)) - min(map(len, held)) <= 1


def test_a_topic_is_for_its_subscribers_only_g4() -> None:
    """SimpleHeterogeneousAssignmentBuilder: each topic by itself."""
    all_ = {"a": MemberSpec(None, frozenset({topic_id("t")}), {topic_id("u"): frozenset({0})})}
    all_["b"] = MemberSpec(None, frozenset({topic_id("t"), topic_id("u")}), {})
    dealt = simple.assign(all_, False, {topic_id("t"): [0, 1], topic_id("u"): [0]})
    assert {name: sorted(one) for name, one in dealt.items()} == {
        "a": [topic_id("t")],
        "b": [topic_id("t"), topic_id("u")],
    }
    assert sum(len(one[topic_id("t")]) for one in dealt.values()) == 2


def test_nothing_to_assign_g4() -> None:
    assert simple.assign(members(2, {}, "t"), True, {}) == {"m0": {}, "m1": {}}
    assert simple.assign(members(1, {}, "t"), True, {topic_id("t"): []}) == {"m0": {}}
