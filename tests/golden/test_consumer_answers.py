"""Answers of Apache Kafka 4.3.1 to members of consumer groups, and ours to the same (G4, G5, G6).

`consumer_answers.json` is made by `python -m tests.golden.consumer_stage`; `consumer_plays.py` has what is asked.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.golden.consumer_plays import PLAYS
from tests.golden.consumer_stage import answers_of
from tests.kit.broker_process import BrokerProcess

KAFKAS: dict[str, list[str]] = json.loads((Path(__file__).parent / "consumer_answers.json").read_text())


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """All plays at once, each with groups of its own."""
    work_dir = tmp_path_factory.mktemp("golden")
    with BrokerProcess(work_dir, settings={"storage": "memory"}) as broker, ThreadPoolExecutor(len(PLAYS)) as pool:
        answers = pool.map(lambda play: answers_of(broker.address, play, 0), PLAYS.values())
        yield dict(zip(PLAYS, answers, strict=True))


def test_there_are_answers_to_all_plays() -> None:
    assert KAFKAS.keys() == PLAYS.keys()


@pytest.mark.parametrize("play", PLAYS)
def test_every_answer_is_kafkas_g4_g5_g6(ours: dict[str, list[str]], play: str) -> None:
    assert ours[play] == KAFKAS[play]
