"""The classic protocol's member, step by step (G1, G2, KIP-345, KIP-394, KIP-429, KIP-792, KIP-814)."""

import pytest

from fencepost.client.core.assignors import ASSIGNORS, strategies
from fencepost.client.core.classic_member import ClassicMember, Joined, JoinedMember
from fencepost.client.core.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from fencepost.client.core.group_steps import STAY, Assign, CountPartitions, Fail, Join, Revoke, Sync
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


def partitions(*numbers: int, topic: str = "t") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def member(*offered: str, topics: tuple[str, ...] = ("t",), instance: str | None = None) -> ClassicMember:
    return ClassicMember(strategies(offered or ("range",)), topics, instance)


def join_of(machine: ClassicMember) -> Join:
    step = machine.step()
    assert isinstance(step, Join), step
    return step


def follow(machine: ClassicMember, generation: int, *numbers: int, settle: bool = True) -> None:
    """A whole round in which another one leads and gives these partitions."""
    join_of(machine)
    strategy = machine._offered[0].name
    machine.joined(Joined(ErrorCode.NONE, "m", generation, strategy, "leader"))
    assert machine.step() == Sync("m", generation, strategy, ())
    machine.synced(generation, ErrorCode.NONE, encode_assignment(sorted(partitions(*numbers))))
    while settle and not isinstance(step := machine.step(), Join) and step != STAY:
        assert isinstance(step, Assign | Revoke)
        if isinstance(step, Assign):
            machine.assigned(step.partitions)
        else:
            machine.revoked(step.partitions, lost=step.lost)


def test_a_newcomer_comes_again_with_the_id_it_is_given() -> None:
    """KIP-394."""
    machine = member()
    assert join_of(machine).member_id == ""
    machine.joined(Joined(ErrorCode.MEMBER_ID_REQUIRED, "m-1"))
    assert join_of(machine).member_id == "m-1"
    assert not machine.sends_heartbeats


def test_an_eager_member_gives_everything_up_before_it_joins() -> None:
    machine = member("range", "cooperative-sticky")
    follow(machine, 1, 0, 1)
    assert machine.owned == partitions(0, 1)
    machine.responded(1, ErrorCode.REBALANCE_IN_PROGRESS)
    assert machine.step() == Revoke(partitions(0, 1))
    assert machine.sends_heartbeats, "it lives while the program finishes its batch"
    machine.revoked(partitions(0, 1))
    protocols = dict(join_of(machine).protocols)
    assert list(protocols) == ["range", "cooperative-sticky"]
    assert all(decode_subscription(data).owned == () for data in protocols.values())


def test_a_cooperative_member_joins_with_what_it_has_and_comes_again_for_the_rest() -> None:
    """KIP-429, and KIP-792: it says since which generation."""
    machine = member("cooperative-sticky")
    follow(machine, 1, 0, 1, 2)
    machine.responded(1, ErrorCode.REBALANCE_IN_PROGRESS)
    [(_, data)] = join_of(machine).protocols
    assert decode_subscription(data) == Subscription(
        ("t",), b"\0\0\0\1", (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)), 1
    )
    follow(machine, 2, 0, 1, settle=False)
    assert machine.step() == Revoke(partitions(2))
    machine.revoked(partitions(2))
    assert "given up" in join_of(machine).reason
    follow(machine, 3, 0, 1, 5, settle=False)
    assert machine.step() == Assign(partitions(5)), "what it keeps is not touched"
    machine.assigned(partitions(5))
    assert machine.step() == STAY


def test_a_cooperative_member_gives_up_topics_that_it_does_not_want_any_more_before_it_joins() -> None:
    machine = member("cooperative-sticky", topics=("t", "u"))
    join_of(machine)
    machine.joined(Joined(ErrorCode.NONE, "m", 1, "cooperative-sticky", "x"))
    both = partitions(0) | partitions(0, topic="u")
    machine.synced(1, ErrorCode.NONE, encode_assignment(sorted(both)))
    machine.assigned(both)
    machine.subscribe(["t"])
    assert machine.step() == Revoke(partitions(0, topic="u"))
    machine.revoked(partitions(0, topic="u"))
    assert decode_subscription(join_of(machine).protocols[0][1]).topics == ("t",)


def test_a_sync_that_comes_into_the_next_rebalance_leaves_it_its_partitions() -> None:
    """The generation it says is the one in which it was given them, not the one whose Sync it missed."""
    machine = member("cooperative-sticky")
    follow(machine, 1, 0)
    machine.rejoin("a test")
    join_of(machine)
    machine.joined(Joined(ErrorCode.NONE, "m", 2, "cooperative-sticky", "x"))
    machine.synced(2, ErrorCode.REBALANCE_IN_PROGRESS)
    subscription = decode_subscription(join_of(machine).protocols[0][1])
    assert (set(subscription.owned), subscription.generation) == (partitions(0), 1)


def test_a_member_is_rejoining_from_its_join_until_the_answer() -> None:
    """Then a refused commit says nothing: the group may be in the next generation already."""
    machine = member("cooperative-sticky")
    join_of(machine)
    assert not machine.is_rejoining, "it is no member yet"
    follow(machine, 1, 0)
    assert not machine.is_rejoining
    machine.rejoin("a test")
    join_of(machine)
    assert machine.is_rejoining
    machine.joined(Joined(ErrorCode.NONE, "m", 2, "cooperative-sticky", "x"))
    assert not machine.is_rejoining
    machine.expelled("a test")
    assert not machine.is_rejoining


def led(machine: ClassicMember, generation: int, *, skip: bool = False) -> None:
    join_of(machine)
    wanted = encode_subscription(Subscription(("t", "u")))
    members = [JoinedMember("m", None, join_of(machine).protocols[0][1]), JoinedMember("n", None, wanted)]
    strategy = machine._offered[0].name
    machine.joined(Joined(ErrorCode.NONE, "m", generation, strategy, "m", skip, members))
    assert machine.step() == CountPartitions(("t", "u"))


def test_the_leader_deals_and_watches_the_topics_of_the_whole_group() -> None:
    machine = member("range")
    led(machine, 1)
    machine.counted({"t": 2, "u": 1})
    step = machine.step()
    assert isinstance(step, Sync)
    dealt = {name: decode_assignment(data) for name, data in step.assignments}
    assert dealt == {"m": [TopicPartition("t", 0)], "n": [TopicPartition("t", 1), TopicPartition("u", 0)]}
    machine.synced(1, ErrorCode.NONE, dict(step.assignments)["m"])
    machine.assigned(partitions(0))
    assert machine.watched == {"t", "u"}
    machine.topics_counted({"t": 2, "u": 1})
    assert machine.step() == STAY
    machine.topics_counted({"t": 2, "u": 2})
    assert machine.step() == Revoke(partitions(0))


def test_a_leader_that_may_skip_assigns_nothing_and_watches_all_the_same() -> None:
    """KIP-814."""
    machine = member("range", instance="i")
    led(machine, 4, skip=True)
    machine.counted({"t": 2})
    assert machine.step() == Sync("m", 4, "range", ())
    machine.synced(4, ErrorCode.NONE, encode_assignment(sorted(partitions(0))))
    machine.assigned(partitions(0))
    machine.topics_counted({"t": 2, "u": 1})
    assert machine.step() == Revoke(partitions(0)), "a topic has come"


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
@pytest.mark.parametrize("api", ["Heartbeat", "OffsetCommit"])
def test_who_is_expelled_has_lost_everything(code: ErrorCode, api: str) -> None:
    machine = member("cooperative-sticky")
    follow(machine, 3, 0, 1)
    machine.responded(2, code, api)
    assert machine.step() == STAY, "an answer to an earlier generation says nothing"
    machine.responded(3, code, api)
    assert machine.step() == Revoke(partitions(0, 1), lost=True)
    assert machine.has_lost
    assert not machine.sends_heartbeats
    machine.revoked(partitions(0, 1), lost=True)
    step = join_of(machine)
    assert step.member_id == ("" if code is ErrorCode.UNKNOWN_MEMBER_ID else "m")
    assert decode_subscription(step.protocols[0][1]).owned == ()


def test_a_successor_with_the_same_instance_id_ends_it() -> None:
    """KIP-345."""
    machine = member(instance="i")
    follow(machine, 1, 0)
    machine.responded(1, ErrorCode.FENCED_INSTANCE_ID)
    assert machine.step() == Revoke(partitions(0), lost=True)
    machine.revoked(partitions(0), lost=True)
    assert machine.step() == Fail(ErrorCode.FENCED_INSTANCE_ID, "Heartbeat")


@pytest.mark.parametrize(
    "code", [ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INVALID_SESSION_TIMEOUT]
)
def test_what_no_further_try_would_mend_ends_it(code: ErrorCode) -> None:
    machine = member()
    join_of(machine)
    machine.joined(Joined(code))
    assert machine.step() == Fail(code, "JoinGroup")


def test_a_strategy_that_was_not_offered_is_not_played() -> None:
    machine = member("range")
    join_of(machine)
    machine.joined(Joined(ErrorCode.NONE, "m", 1, "sticky", "m"))
    assert machine.step() == Fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "JoinGroup")


def test_the_sticky_assignor_hears_of_what_was_given_up() -> None:
    machine = member("sticky")
    follow(machine, 5, 0, 2)
    machine.rejoin("a test")
    machine.revoked(partitions(0, 2))
    data = join_of(machine).protocols[0][1]
    seen = ASSIGNORS["sticky"].member("m", None, decode_subscription(data))
    assert (seen.owned, seen.generation) == (partitions(0, 2), 5)


def test_a_wish_that_changes_while_it_joins_is_told_by_the_next_join() -> None:
    machine = member("cooperative-sticky")
    join_of(machine)
    machine.subscribe(["t", "u"])
    machine.joined(Joined(ErrorCode.NONE, "m", 1, "cooperative-sticky", "x"))
    machine.synced(1, ErrorCode.NONE, encode_assignment(sorted(partitions(0))))
    machine.assigned(partitions(0))
    assert decode_subscription(join_of(machine).protocols[0][1]).topics == ("t", "u")
