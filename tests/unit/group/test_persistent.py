"""Collections that share what they hold with those they came from: none of them ever sees what came after it."""

import random

from hypothesis import given
from hypothesis import strategies as st

from fencepost.coordinator.group.persistent import PersistentMap, PersistentSet

NAMES = st.sampled_from("abcdefgh")


def test_a_set_is_not_changed_by_those_that_grow_out_of_it() -> None:
    none = PersistentSet()
    one = none.plus("a")
    two, other = one.plus("b"), one.plus("c")
    assert (list(none), list(one), list(two), list(other)) == ([], ["a"], ["a", "b"], ["a", "c"])
    assert "b" not in one
    assert "c" not in two
    assert one.plus("a") is one
    assert two == frozenset("ab") != other
    assert two.minus("a") == {"b"} == two - {"a"}
    assert (list(two), two.minus("z")) == (["a", "b"], two)


def test_a_map_is_not_changed_by_those_that_come_after_it() -> None:
    first = PersistentMap({"a": 1})
    second = first.plus("b", 2)
    third, other = second.plus("a", 3), second.plus("c", 4)
    assert (first, second, third) == ({"a": 1}, {"a": 1, "b": 2}, {"a": 3, "b": 2})
    assert other == {"a": 1, "b": 2, "c": 4}
    assert list(third.items()) == [("a", 3), ("b", 2)]
    assert (third["a"], third.get("z"), "c" in third, len(other)) == (3, None, False, 3)


@given(st.lists(st.tuples(st.integers(0, 30), NAMES, st.integers(1, 9))), st.randoms(use_true_random=False))
def test_any_history_gives_what_copies_would_give(steps: list[tuple[int, str, int]], order: random.Random) -> None:
    """Each step goes on from any version there is; in the end all are looked at, in any order."""
    grown, sets = [PersistentSet()], [frozenset[str]()]
    maps, dicts = [PersistentMap[int]({})], [dict[str, int]()]
    for at, name, value in steps:
        at %= len(sets)
        grown.append(grown[at].plus(name))
        sets.append(sets[at] | {name})
        maps.append(maps[at].plus(name, value))
        dicts.append({**dicts[at], name: value})
    numbers = list(range(len(sets)))
    order.shuffle(numbers)
    for number in numbers:
        assert grown[number] == sets[number]
        assert len(grown[number]) == len(sets[number])
        assert list(maps[number].items()) == list(dicts[number].items())
