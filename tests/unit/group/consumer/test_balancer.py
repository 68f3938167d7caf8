"""Each pick of the balancer is a member of the least or the most load, as counting all of them would find."""

from hypothesis import given
from hypothesis import strategies as st

from fencepost.coordinator.group.assignors.balancer import Balancer

LOADS = st.lists(st.integers(0, 6), min_size=1, max_size=12)


@given(LOADS, st.data())
def test_each_partition_goes_to_a_member_with_the_fewest(loads: list[int], data: st.DataObject) -> None:
    members = data.draw(st.lists(st.sampled_from(range(len(loads))), min_size=1, unique=True))
    balancer = Balancer(loads, members)
    for _ in range(30):
        member = balancer.least_loaded()
        assert member in members
        assert loads[member] == min(loads[one] for one in members)
        loads[member] += 1


@given(LOADS, st.data())
def test_each_partition_comes_from_a_member_with_the_most_that_has_one_to_give(
    loads: list[int], data: st.DataObject
) -> None:
    members = range(len(loads))
    can_give = data.draw(st.sets(st.sampled_from(members)))
    balancer = Balancer(loads, members)
    givers = set(members)
    while not balancer.is_balanced():
        giver = balancer.most_loaded()
        while giver is not None and giver not in can_give:
            assert loads[giver] == max(loads[one] for one in givers)
            givers.remove(giver)
            balancer.exclude_most_loaded()
            giver = balancer.most_loaded()
        if giver is None:
            assert not givers
            return
        assert giver in givers
        assert loads[giver] == max(loads[one] for one in givers)
        taker = balancer.least_loaded()
        if balancer.is_balanced():
            break
        assert loads[taker] == min(loads)
        loads[giver] -= 1
        loads[taker] += 1
    assert not givers or max(loads[one] for one in givers) - min(loads) <= 1
