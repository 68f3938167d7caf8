"""Messages have types, and they are those of their declarations."""

from pathlib import Path

import pytest

from tests.architecture.message_stubs import MESSAGES, RECORDS, write_stubs
from tests.kit.type_checker import assert_mypy_says

PROGRAM = """
from typing import TypeVar

from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import RequestValue, ResponseValue

R = TypeVar("R", bound=ResponseValue)


def answer_to(request: RequestValue[R]) -> R:
    raise NotImplementedError


request = ProduceRequest.decode(b"", 9)
reveal_type(request.topic_data[0].partition_data[0].records)  # says: memoryview[int] | None
request.topic_dta  # says: has no attribute "topic_dta"
ProduceRequest(ack=1)  # says: Unexpected keyword argument "ack"
PartitionProduceData(index="1")  # says: incompatible type "str"; expected "int"
reveal_type(answer_to(request).responses[0].name)  # says: Revealed type is "str"
reveal_type(API_BY_KEY[0].request.decode(b"", 9).api_key)  # says: ApiKey
"""


def test_the_stubs_say_what_the_declarations_say(tmp_path: Path) -> None:
    write_stubs(tmp_path, tmp_path)
    fresh = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.pyi")}
    kept = {
        path.name: path.read_text(encoding="utf-8") for path in (*MESSAGES.glob("*.pyi"), RECORDS.with_suffix(".pyi"))
    }
    assert kept == fresh, "make stubs writes them anew"


@pytest.mark.long
def test_a_type_checker_finds_a_misspelt_field_of_a_message(tmp_path: Path) -> None:
    assert_mypy_says(PROGRAM, tmp_path)
