"""Messages have types, and they are those of their declarations."""

import subprocess
import sys
from pathlib import Path

from tests.architecture.message_stubs import MESSAGES, write_stubs
from tests.architecture.project_files import ROOT

PROGRAM = """
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import RequestValue, ResponseValue


def answer_to[R: ResponseValue](request: RequestValue[R]) -> R:
    raise NotImplementedError


request = ProduceRequest.decode(b"", 9)
reveal_type(request.topic_data[0].partition_data[0].records)
request.topic_dta
ProduceRequest(ack=1)
PartitionProduceData(index="1")
reveal_type(answer_to(request).responses[0].name)
reveal_type(API_BY_KEY[0].request.decode(b"", 9).api_key)
"""


def test_the_stubs_say_what_the_declarations_say(tmp_path: Path) -> None:
    write_stubs(tmp_path)
    fresh = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.pyi")}
    kept = {path.name: path.read_text(encoding="utf-8") for path in MESSAGES.glob("*.pyi")}
    assert kept == fresh, "make stubs writes them anew"


def test_a_type_checker_finds_a_misspelt_field_of_a_message(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    words = ["--strict", "--python-version=3.12", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache")]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *words, str(program)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    lines = [line.partition("program.py:")[2] for line in run.stdout.splitlines()]
    found = {line.partition(":")[0]: line for line in lines if ("error:" in line or "Revealed" in line)}
    assert list(found) == ["12", "13", "14", "15", "16", "17"], run.stdout
    assert "memoryview[int] | None" in found["12"]
    assert 'has no attribute "topic_dta"' in found["13"]
    assert 'Unexpected keyword argument "ack"' in found["14"]
    assert 'incompatible type "str"; expected "int"' in found["15"]
    assert 'Revealed type is "str"' in found["16"].replace("builtins.", "")
    assert "ApiKey" in found["17"]
