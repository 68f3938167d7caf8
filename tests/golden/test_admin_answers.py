"""Answers of Apache Kafka 4.3.1 to an administrator, and ours to the same questions (D1 to D3, D8; KIP-516).

`admin_answers.json` is made by `python -m tests.golden.admin_scenarios`; `admin_plays.py` and `admin_cluster_plays.py`
have what is asked. Every field is compared, but for topic settings that Kafka does not have. Words are compared where
Kafka has words of its own; what it says of a value that cannot be read or is out of bounds, we say in more of them.
"""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.config.topic_settings import TOPIC_SETTINGS
from tests.golden.admin_plays import PLAYS
from tests.golden.group_scenarios import answers_of
from tests.kit.broker_process import BrokerProcess

KAFKAS: dict[str, list[list[Any]]] = json.loads((Path(__file__).parent / "admin_answers.json").read_text())
Answers = dict[str, list[list[Any]]]
OURS = {name for name, row in TOPIC_SETTINGS.items() if row.setting.ours}
_VALUE = re.compile(r"Invalid value .* for configuration (\S+): .*")
_NOTHING = "This most likely occurs because of a request being malformed"
"""How Kafka begins where an exception was all it had."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """All plays at once, each with topics of its own."""
    work_dir = tmp_path_factory.mktemp("golden")
    with BrokerProcess(work_dir, data_dir=work_dir / "data") as broker, ThreadPoolExecutor(len(PLAYS)) as pool:
        yield dict(zip(PLAYS, pool.map(lambda play: answers_of(broker.address, play), PLAYS.values()), strict=True))


def without_ours(answer: Any) -> Any:
    """Our answer without the topic settings that Kafka does not have, and without the tag of DescribeLogDirs."""
    if isinstance(answer, list):
        return [without_ours(one) for one in answer if not (isinstance(one, dict) and one.get("name") in OURS)]
    if not isinstance(answer, dict):
        return answer
    assert answer.get("ends") is None
    return {name: without_ours(value) for name, value in answer.items() if name != "ends"}


def in_kafkas_words(answer: Any, kafkas: Any) -> Any:
    """Our answer, with Kafka's words wherever ours say the same of the same error."""
    if isinstance(answer, list) and isinstance(kafkas, list) and len(answer) == len(kafkas):
        return [in_kafkas_words(one, other) for one, other in zip(answer, kafkas, strict=True)]
    if not isinstance(answer, dict) or not isinstance(kafkas, dict):
        return answer
    found = {name: in_kafkas_words(value, kafkas.get(name)) for name, value in answer.items()}
    if "error_message" in kafkas and found["error_code"] and _alike(found["error_message"], kafkas["error_message"]):
        found["error_message"] = kafkas["error_message"]
    return found


def _alike(words: str | None, kafkas: str | None) -> bool:
    if not kafkas or kafkas.startswith(_NOTHING):
        return True
    if not words:
        return False
    if words.startswith(f"{kafkas}: "):  # and then what was given, and what to do
        return True
    return _VALUE.sub(r"\1", words) == _VALUE.sub(r"\1", kafkas) or kafkas.startswith(words.rstrip("."))


def test_there_are_answers_to_all_plays() -> None:
    assert KAFKAS.keys() == PLAYS.keys()


@pytest.mark.parametrize("play", PLAYS)
def test_every_answer_is_kafkas_d1_d2_d3_d8(ours: Answers, play: str) -> None:
    kafkas, here = KAFKAS[play], ours[play]
    assert [step for step, _ in here] == [step for step, _ in kafkas]
    for (step, answer), (_, expected) in zip(here, kafkas, strict=True):
        assert in_kafkas_words(without_ours(answer), expected) == expected, step


def test_other_words_are_told_apart() -> None:
    """The comparison itself: codes always count, and words unless they only say more of a value."""
    refused = {"error_code": 40, "error_message": "Invalid value x for configuration a.b: Not a number"}
    ours = {"error_code": 40, "error_message": "Invalid value x for configuration a.b: 'x' is no number"}
    assert in_kafkas_words(ours, refused) == refused
    assert in_kafkas_words({**ours, "error_code": 42}, refused) != refused
    assert in_kafkas_words({**ours, "error_message": "Invalid value x for configuration b: why"}, refused) != refused
    assert in_kafkas_words({**ours, "error_message": None}, refused) != refused
    assert in_kafkas_words({"error_code": 0, "error_message": "x"}, {"error_code": 0, "error_message": None}) != refused
