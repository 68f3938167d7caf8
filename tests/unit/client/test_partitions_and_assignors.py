"""Where records go, and who reads which partition."""

import random

import pytest

from fencepost import KafkaError, TopicPartition
from fencepost.client.assignors import (
    Member,
    assign_range,
    assign_roundrobin,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from fencepost.client.partitioner import Partitioner, murmur2


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_numbers_that_kafkas_java_client_is_tested_with(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


def test_a_key_stays_and_a_keyless_run_moves() -> None:
    partitioner = Partitioner(random.Random(1))
    places = {partitioner.choose(b"k", 8) for _ in range(5)}
    assert places == {(murmur2(b"k") & 0x7FFFFFFF) % 8}
    before = partitioner.choose(None, 8)
    assert partitioner.choose(None, 8) == before
    partitioner.next_run()
    assert partitioner.choose(None, 8) != before
    assert partitioner.choose(b"k", 3) == (murmur2(b"k") & 0x7FFFFFFF) % 3, "the count of partitions has changed"


def member(name: str, *topics: str, instance: str | None = None) -> Member:
    return Member(name, instance, topics)


def numbers(assigned: dict[str, list[TopicPartition]]) -> dict[str, list[str]]:
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


def test_more_members_than_partitions() -> None:
    members = [member("a", "t"), member("b", "t"), member("c", "other")]
    assert numbers(assign_range(members, {"t": 1})) == {"a": ["t0"], "b": [], "c": []}
    assert numbers(assign_roundrobin(members, {"t": 1})) == {"a": ["t0"], "b": [], "c": []}


def test_the_protocols_bytes_are_those_of_another_client() -> None:
    from kafka.protocol.consumer import ConsumerProtocolSubscription  # type: ignore[import-untyped]

    theirs = ConsumerProtocolSubscription(topics=["a", "b"], user_data=None, version=0)
    assert encode_subscription(["a", "b"]) == theirs.encode(version=0, header=True)
    partitions = [TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("ü", 1)]
    assert decode_assignment(encode_assignment(partitions)) == partitions


def test_later_versions_of_a_subscription_only_append() -> None:
    assert decode_subscription(b"\x00\x03" + encode_subscription(["a"])[2:] + b"\0\0\0\0\0\0\0\x05\xff\xff") == ("a",)


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0\0\x01", b"\0\0\0\0\0\x01\0\x09abc", b"\0\0\0\0\0\x01\xff\xff"])
def test_a_damaged_subscription_is_told_as_such(data: bytes) -> None:
    with pytest.raises(KafkaError, match="can not be read"):
        decode_subscription(data)
    assert decode_assignment(b"") == []
