"""The programs of docs/schema-registry.md, with nothing changed but the addresses."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.schema_registry import SchemaRegistry

ROOT = Path(__file__).resolve().parents[4]
GUIDE = ROOT / "docs/schema-registry.md"
# What protoc would have written.
ORDERS_PB2 = "from tests.kit.schemas import ProtobufOrder as Order\n"


@pytest.mark.parametrize(
    ("section", "printed", "subjects"),
    [
        ("Avro", "{'id': 7, 'item': 'tea'}\n", ["orders-value"]),
        ("JSON Schema, without an event loop", "[{'cents': 250}]\n", ["payments-value"]),
        ("Protobuf", "7 tea\n", ["orders-v2-value"]),
    ],
)
def test_the_programs_of_the_guide_run(
    address: str, tmp_path: Path, section: str, printed: str, subjects: list[str]
) -> None:
    text = GUIDE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2]
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert program is not None
    assert "127.0.0.1:9092" in program[1]
    assert "http://127.0.0.1:8081" in program[1]
    (tmp_path / "orders_pb2.py").write_text(ORDERS_PB2, encoding="utf-8")
    with SchemaRegistry() as registry:
        words = program[1].replace("127.0.0.1:9092", address).replace("http://127.0.0.1:8081", registry.url)
        run = subprocess.run(
            [sys.executable, "-c", words],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout == printed
        assert registry.answer("GET", "/subjects", {}, None) == subjects


@pytest.mark.parametrize(
    "words",
    [
        "does not answer",
        "refuses this client",
        "rejects the schema",
        "does not have the schema",
        "does not have schema ",
        "do not begin with magic byte 0",
    ],
)
def test_the_guide_quotes_messages_that_exist(words: str) -> None:
    product = (ROOT / "fencepost/client/schema_registry.py").read_text(encoding="utf-8")
    assert f"`{words}" in GUIDE.read_text(encoding="utf-8")
    assert words in product
