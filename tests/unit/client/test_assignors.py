"""Who of a classic group reads which partition, and the bytes by which members say so."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import ConsumerProtocolAssignment, ConsumerProtocolSubscription  # type: ignore[import-untyped]

from fencepost import ConfigError, KafkaError, TopicPartition
from fencepost.client.core import sticky
from fencepost.client.core.assignors import (
    ASSIGNORS,
    assign_cooperative,
    assign_range,
    assign_roundrobin,
    is_cooperative,
    strategies,
    strategy_names,
)
from fencepost.client.core.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from fencepost.client.core.sticky import Member
from tests.kit.examples import examples

Dealt = dict[str, list[TopicPartition]]


def member(name: str, *topics: str, instance: str | None = None) -> Member:
    return Member(name, instance, frozenset(topics))


def numbers(assigned: Dealt) -> dict[str, list[str]]:
    return {name: [f"{topic}{partition}" for topic, partition in got] for name, got in assigned.items()}


def test_range_gives_neighbours_and_the_rest_to_the_first() -> None:
    members = [member("b", "t", "u"), member("a", "t", "u")]
    assert numbers(assign_range(members, {"t": 3, "u": 3})) == {"a": ["t0", "t1", "u0", "u1"], "b": ["t2", "u2"]}


def test_roundrobin_deals_one_by_one_and_skips_who_does_not_want_the_topic() -> None:
    members = [member("a", "t"), member("b", "t", "u"), member("c", "u")]
    assert numbers(assign_roundrobin(members, {"t": 3, "u": 3})) == {
        "a": ["t0", "t2"],
        "b": ["t1", "u0", "u2"],
        "c": ["u1"],
    }


def test_static_members_come_first_by_their_instance() -> None:
    members = [member("z", "t", instance="1"), member("a", "t"), member("y", "t", instance="2")]
    assert numbers(assign_range(members, {"t": 3})) == {"z": ["t0"], "y": ["t1"], "a": ["t2"]}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_more_members_than_partitions(name: str) -> None:
    members = [member("a", "t"), member("b", "t"), member("c", "other")]
    assert numbers(ASSIGNORS[name].assign(members, {"t": 1})) == {"a": ["t0"], "b": [], "c": []}


# -- the sticky ones, proved


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[list[Member], dict[str, int]]:
    """Members with what they had in some earlier generation: claims that overlap, are out of date, or make no sense."""
    counts = draw(st.dictionaries(st.sampled_from("tuvw"), st.integers(1, 7), min_size=1))
    everything = [TopicPartition(topic, number) for topic in sorted(counts) for number in range(counts[topic] + 1)]
    names = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True)
    topics = st.frozensets(st.sampled_from([*counts, "gone"]), min_size=1)
    common = draw(topics)
    members = [
        Member(
            name,
            draw(st.sampled_from([None, f"i{name}"])),
            common if alike else draw(topics),
            frozenset(draw(st.lists(st.sampled_from(everything), max_size=8))),
            draw(st.integers(-1, 3)),
        )
        for name in draw(names)
    ]
    return members, counts


def check_dealt(members: list[Member], counts: dict[str, int], dealt: Dealt) -> None:
    """Everything that is wanted is dealt, once, to somebody who wants it."""
    wanted = {topic for one in members for topic in one.topics if topic in counts}
    everything = {TopicPartition(topic, number) for topic in wanted for number in range(counts[topic])}
    assert Counter(partition for all_ in dealt.values() for partition in all_) == Counter(everything)
    for one in members:
        assert {partition.topic for partition in dealt[one.member_id]} <= one.topics


def chain_to_a_poorer_one(members: list[Member], dealt: Dealt) -> bool:
    """Whether handing partitions on from member to member could still level two of them that differ by two or more."""
    wants = {one.member_id: one.topics for one in members}
    reach = {
        giver: {taker for taker in wants if any(partition.topic in wants[taker] for partition in dealt[giver])}
        for giver in wants
    }
    for giver in wants:
        seen, line = {giver}, [giver]
        while line:
            for taker in reach[line.pop()] - seen:
                seen.add(taker)
                line.append(taker)
        if any(len(dealt[giver]) >= len(dealt[taker]) + 2 for taker in seen):
            return True
    return False


@given(groups())
@settings(max_examples=examples(150), deadline=None)
def test_sticky_is_complete_and_balanced(group: tuple[list[Member], dict[str, int]]) -> None:
    members, counts = group
    dealt = sticky.assign(members, counts)
    check_dealt(members, counts, dealt)
    assert not chain_to_a_poorer_one(members, dealt)
    assert dealt == sticky.assign(members[::-1], counts), "whoever leads deals out the same"


@given(groups())
@settings(max_examples=examples(100), deadline=None)
def test_sticky_moves_nothing_when_nothing_has_changed(group: tuple[list[Member], dict[str, int]]) -> None:
    members, counts = group
    dealt = sticky.assign(members, counts)
    again = [one._replace(owned=frozenset(dealt[one.member_id]), generation=5) for one in members]
    assert sticky.assign(again, counts) == dealt


@given(groups(alike=True), st.data())
@settings(max_examples=examples(120), deadline=None)
def test_sticky_keeps_as_much_as_any_balanced_assignment_could(
    group: tuple[list[Member], dict[str, int]], data: st.DataObject
) -> None:
    """Among members that want the same: nobody who has less than its share loses anything, nobody more than it must."""
    members, counts = group
    dealt = sticky.assign(members, counts)
    leaver = data.draw(st.sampled_from(members))
    left = [one._replace(owned=frozenset(dealt[one.member_id]), generation=5) for one in members if one is not leaver]
    newcomer = members[0]._replace(member_id="new", instance_id=None, owned=frozenset(), generation=-1)
    for after in (left, [*left, newcomer]):
        if not after:
            continue
        now = sticky.assign(after, counts)
        share, larger = divmod(sum(map(len, now.values())), len(after))
        kept = sum(len(one.owned & set(now[one.member_id])) for one in after)
        sizes = sorted((len(one.owned) for one in after), reverse=True)
        assert kept == sum(min(size, share + (place < larger)) for place, size in enumerate(sizes))
        assert {len(all_) for all_ in now.values()} <= {share, share + 1}


@given(groups())
@settings(max_examples=examples(120), deadline=None)
def test_cooperative_gives_nothing_away_that_another_one_still_has(group: tuple[list[Member], dict[str, int]]) -> None:
    """KIP-429: one round takes, the next one gives; two rounds are enough, and come to what sticky wants."""
    members, counts = group
    target = sticky.assign(members, counts)
    first = assign_cooperative(members, counts)
    for one in members:
        others = {partition for other in members if other is not one for partition in other.owned}
        assert set(first[one.member_id]) <= set(target[one.member_id])
        assert not (set(first[one.member_id]) - one.owned) & others
    second = [one._replace(owned=frozenset(first[one.member_id]), generation=9) for one in members]
    dealt = assign_cooperative(second, counts)
    check_dealt(members, counts, dealt)
    assert not chain_to_a_poorer_one(members, dealt)
    for one in second:
        assert one.owned <= set(dealt[one.member_id]), "the second round takes nothing from anybody"


def test_the_later_generation_is_believed_and_of_two_alike_none() -> None:
    """KIP-792: a member that missed a rebalance still says what it had."""
    mine = frozenset({TopicPartition("t", 0)})
    late = Member("a", None, frozenset("t"), mine, 3)
    now = Member("b", None, frozenset("t"), mine, 4)
    assert sticky._valid_ownership([late, now], {"t": 2}) == {"a": set(), "b": set(mine)}
    assert sticky._valid_ownership([late, now._replace(generation=3)], {"t": 2}) == {"a": set(), "b": set()}
    assert sticky.assign([late, now], {"t": 2})["b"] == [TopicPartition("t", 0)]


# -- strategies


def test_only_members_that_offer_nothing_else_are_cooperative() -> None:
    """Kafka's way up (KIP-429): [range, cooperative-sticky] gives everything up before it joins."""
    assert strategy_names("range, cooperative-sticky") == ("range", "cooperative-sticky")
    assert strategy_names(["org.apache.kafka.clients.consumer.CooperativeStickyAssignor"]) == ("cooperative-sticky",)
    assert not is_cooperative(strategies(["range", "cooperative-sticky"]))
    assert not is_cooperative(strategies(["cooperative-sticky", "range"]))
    assert is_cooperative(strategies(["cooperative-sticky"]))


@pytest.mark.parametrize("wrong", [[], ["range", "range"], ["fair"]])
def test_strategies_that_are_none(wrong: list[str]) -> None:
    with pytest.raises(ConfigError):
        strategies(wrong)


# -- bytes

OWNED = (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("ü", 1))


@pytest.mark.parametrize("version", range(4))
def test_the_protocols_bytes_are_those_of_another_client(version: int) -> None:
    theirs = ConsumerProtocolSubscription(
        version=version,
        topics=["a", "b"],
        user_data=b"x",
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic="a", partitions=[0, 2]),
            ConsumerProtocolSubscription.TopicPartition(topic="ü", partitions=[1]),
        ]
        if version >= 1
        else [],
        generation_id=7 if version >= 2 else -1,
        rack_id="r" if version >= 3 else None,
    ).encode(version=version, header=True)
    ours = Subscription(
        ("a", "b"), b"x", OWNED if version >= 1 else (), 7 if version >= 2 else -1, "r" if version >= 3 else None
    )
    assert encode_subscription(ours, version) == theirs
    assert decode_subscription(theirs) == ours
    assigned = encode_assignment(OWNED, version)
    read = ConsumerProtocolAssignment.decode(assigned, version=version, header=True)
    assert [(one.topic, list(one.partitions)) for one in read.assigned_partitions] == [("a", [0, 2]), ("ü", [1])]
    assert decode_assignment(assigned) == list(OWNED)


def test_later_versions_of_a_subscription_only_append() -> None:
    data = encode_subscription(Subscription(("a",)))
    assert decode_subscription(b"\x00\x09" + data[2:] + b"more").topics == ("a",)


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_what_a_member_had_comes_to_the_leader(name: str) -> None:
    """`sticky` tells it in its user data, for it has given everything up; the other one in the subscription."""
    assignor = ASSIGNORS[name]
    owned = OWNED if assignor.cooperative else ()
    sent = encode_subscription(Subscription(("a", "ü"), assignor.user_data(set(OWNED), 7), owned, 7))
    seen = assignor.member("m", None, decode_subscription(sent))
    assert (seen.owned, seen.generation) == (frozenset(OWNED), 7)


def test_a_generation_in_the_user_data_stands_for_one_in_the_subscription() -> None:
    """Members that write version 1 of the subscription have no other place for it."""
    sent = encode_subscription(Subscription(("a",), b"\0\0\0\x05", OWNED), version=1)
    seen = ASSIGNORS["cooperative-sticky"].member("m", None, decode_subscription(sent))
    assert (seen.owned, seen.generation) == (frozenset(OWNED), 5)


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0\0\0\0\x01", b"\0\0\0\0\0\x01\0\x09abc", b"\0\0\0\0\0\x01\xff\xff", b"\xff\xff", b"\0\0\xff\0\0\0"],
)
def test_a_damaged_subscription_is_told_as_such(data: bytes) -> None:
    with pytest.raises(KafkaError, match="cannot be read"):
        decode_subscription(data)
    assert decode_assignment(b"") == []
