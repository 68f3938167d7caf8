"""Share groups (KIP-932) beside Kafka's classes: ShareGroups.java wrote records, and what its assignor deals."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fencepost.coordinator.group.assignors import simple
from fencepost.coordinator.group.assignors.spec import Assignment, MemberSpec
from fencepost.coordinator.group.codec import decode, encode
from fencepost.coordinator.group.share.codec import KEY_VERSIONS
from fencepost.coordinator.group.share.partitions import Begun, GroupPartitions
from fencepost.coordinator.group.share.records import SHARE_RECORDS, ShareCurrentRecord, SharePartitionsRecord

GOLDEN = json.loads(Path(__file__).with_name("share_groups.json").read_text())
RECORDS: list[tuple[str, str | None]] = GOLDEN["records"]
ORDERS = bytes.fromhex("112233445566778899aabbccddeeff00")


def bytes_of(key: str, value: str | None) -> tuple[bytes, bytes | None]:
    return bytes.fromhex(key), None if value is None else bytes.fromhex(value)


@pytest.mark.parametrize(("key", "value"), RECORDS)
def test_kafkas_bytes_come_out_as_they_went_in_g8(key: str, value: str | None) -> None:
    """The records 10 to 15 of `__consumer_offsets` (Kafka's GroupCoordinatorRecordHelpers, version 4.4.0)."""
    record = decode(*bytes_of(key, value))
    assert isinstance(record, SHARE_RECORDS)
    assert encode(record) == bytes_of(key, value)


def test_every_kind_is_there_with_its_tombstone_g8() -> None:
    for wanted in (True, False):
        assert {int(key[:4], 16) for key, value in RECORDS if (value is not None) is wanted} == KEY_VERSIONS


def test_the_fields_are_where_kafka_puts_them_g8() -> None:
    read = [decode(*bytes_of(key, value)) for key, value in RECORDS]
    current = next(one for one in read if isinstance(one, ShareCurrentRecord) and one.value is not None)
    assert current.value is not None
    assert (current.value.epoch, current.value.previous_epoch) == (5, 4)
    assert current.value.assigned == {ORDERS: frozenset({0, 2})}
    begun = next(one for one in read if isinstance(one, SharePartitionsRecord) and one.value is not None)
    assert begun.value == GroupPartitions(
        {(1).to_bytes(8) + (2).to_bytes(8): Begun("bills", frozenset({0, 1}))},
        {ORDERS: Begun("orders", frozenset({0, 1, 2}))},
        {(3).to_bytes(8) + (4).to_bytes(8): "old"},
    )


def topic_id(number: str | int) -> bytes:
    return int(number).to_bytes(16, "big")


def assignment(topics: Mapping[str, list[int]]) -> Assignment:
    return {topic_id(number): frozenset(partitions) for number, partitions in topics.items()}


def owners(dealt: Mapping[str, Assignment]) -> Counter[tuple[bytes, int]]:
    """How many members each partition has."""
    return Counter((topic, one) for all_ in dealt.values() for topic, partitions in all_.items() for one in partitions)


@pytest.mark.parametrize("case", GOLDEN["dealt"])
def test_as_even_as_kafkas_simple_assignor_and_as_sticky_g4(case: Any) -> None:
    """KIP-932, Kafka's SimpleAssignor: which member gets which partition is its hash maps' choice."""
    members = {
        name: MemberSpec(None, frozenset(map(topic_id, topics)), assignment(case["had"].get(name, {})))
        for name, topics in case["wanted"].items()
    }
    alike = len({member.topic_ids for member in members.values()}) == 1
    ours = simple.assign(members, alike, assignment(case["begun"]))
    theirs = {name: assignment(all_) for name, all_ in case["dealt"].items()}
    assert owners(ours) == owners(theirs)
    loads = [sorted(sum(map(len, all_.values())) for all_ in dealt.values()) for dealt in (ours, theirs)]
    assert loads[0] == loads[1]
    kept, kept_by_kafka = (
        sum(len(partitions & members[name].assignment.get(topic, frozenset()))
            for name, all_ in dealt.items() for topic, partitions in all_.items())
        for dealt in (ours, theirs)
    )  # fmt: skip
    assert kept >= kept_by_kafka
