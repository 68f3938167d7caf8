"""What mypy says to programs that use typed consumers: the deserializers' types come out of every way to read."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import uuid
from typing import Any, assert_type

import fencepost
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.serializers import Integer, Json, Uuid


class Order:
    number: int


async def main() -> None:
    async with fencepost.Client("127.0.0.1:9092") as kafka:
        assert_type(kafka.consumer("t"), Consumer[bytes, bytes])
        assert_type(kafka.consumer("t", deserializer=bytes.decode, group="g"), Consumer[bytes, str])
        assert_type(kafka.consumer("t", key_deserializer=Uuid()), Consumer[uuid.UUID, bytes])
        async with kafka.consumer("t", key_deserializer=Integer(), value_deserializer=Json(Order)) as consumer:
            async for record in consumer:
                assert_type(record.key, int)
                assert_type(record.value, Order)
                record.value.nmber  # wrong
            async for batch in consumer.batches():
                assert_type(batch[0], fencepost.ConsumerRecord[int, Order])
                text: str = batch[0].key  # wrong
"""


def test_types_go_from_the_deserializers_to_what_is_read(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    root = Path(__file__).parents[3]
    words = ["--strict", "--no-color-output", "--cache-dir", str(root / ".mypy_cache")]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *words, program], cwd=root, capture_output=True, text=True, check=False
    )
    found = {int(line.split(":")[1]) for line in run.stdout.splitlines() if ": error:" in line}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if "# wrong" in line}
    assert found == wrong, run.stdout + run.stderr
