"""Answers of Apache Kafka 4.3.1's group coordinator, and ours to the same questions (G1, G2, G6, G7, G11, T4 to T6).

`group_answers.json` is made by `python -m tests.golden.group_scenarios`; `group_plays.py` has what is asked. Where we
differ on purpose (docs/groups.md), the plays do not go.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.golden.group_plays import PLAYS
from tests.golden.group_scenarios import answers_of
from tests.kit.broker_process import BrokerProcess

KAFKAS: dict[str, list[list[Any]]] = json.loads((Path(__file__).parent / "group_answers.json").read_text())
Answers = dict[str, list[list[Any]]]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """All plays at once, each with groups of its own: most of their time they wait."""
    settings = {"storage": "memory", "group.initial.rebalance.delay.ms": "0"}
    with (
        BrokerProcess(tmp_path_factory.mktemp("golden"), settings=settings) as broker,
        ThreadPoolExecutor(len(PLAYS)) as pool,
    ):
        yield dict(zip(PLAYS, pool.map(lambda play: answers_of(broker.address, play), PLAYS.values()), strict=True))


def test_there_are_answers_to_all_plays() -> None:
    assert KAFKAS.keys() == PLAYS.keys()


@pytest.mark.parametrize("play", PLAYS)
def test_every_answer_is_kafkas_g1_g2_g6_g7_g11(ours: Answers, play: str) -> None:
    kafkas, here = KAFKAS[play], ours[play]
    assert [step for step, _ in here] == [step for step, _ in kafkas]
    for (step, answer), (_, expected) in zip(here, kafkas, strict=True):
        assert answer == expected, step
