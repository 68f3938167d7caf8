"""Our assignors beside Kafka's own, on groups that chance made: Assignors.java wrote what 4.3.1 deals to them.

Range and roundrobin must be equal to the last partition, for they need no other leader's memory. The sticky ones are
free in what they choose; they must be balanced as well, and keep as much.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fencepost.client.core.assignors import ASSIGNORS
from fencepost.client.core.sticky import Member
from fencepost.protocol.topics import TopicPartition

CASES = [
    json.loads(line)
    for line in Path(__file__).with_name("kafka_assignments.ndjson").read_text(encoding="utf-8").splitlines()
]


def members_of(case: Any) -> list[Member]:
    return [
        Member(
            name,
            case["instances"].get(name),
            frozenset(topics),
            frozenset(TopicPartition(*one) for one in case["had"].get(name, ())),
            1,
        )
        for name, topics in case["wanted"].items()
    ]


def of_kafka(case: Any) -> dict[str, list[TopicPartition]]:
    return {name: [TopicPartition(*one) for one in all_] for name, all_ in case["dealt"].items()}


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_the_same_partitions_to_the_same_members(name: str) -> None:
    cases = [case for case in CASES if case["assignor"] == name]
    assert len(cases) == 60
    for case in cases:
        assert ASSIGNORS[name].assign(members_of(case), case["counts"]) == of_kafka(case), case


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_as_balanced_and_where_all_want_the_same_as_sticky(name: str) -> None:
    cases = [case for case in CASES if case["assignor"] == name]
    assert sum(bool(case["had"]) for case in cases) > 40
    for case in cases:
        members, theirs = members_of(case), of_kafka(case)
        ours = ASSIGNORS["sticky"].assign(members, case["counts"])
        if name == "sticky":  # the other one has taken out what changes hands
            assert sum(len(all_) ** 2 for all_ in ours.values()) <= sum(len(all_) ** 2 for all_ in theirs.values())
        if all(member.topics == members[0].topics for member in members):
            kept, kept_by_kafka = (
                sum(len(member.owned & set(dealt[member.member_id])) for member in members) for dealt in (ours, theirs)
            )
            assert kept >= kept_by_kafka, case
