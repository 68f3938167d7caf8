"""What mypy says to programs that use typed producers: the types go through, and mistakes are found."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import uuid
from typing import Any, assert_type

import fencepost
from fencepost.client.producer.deliveries import Delivery
from fencepost.client.producer.producer import Producer
from fencepost.client.serializers import Bytes, Double, Integer, Json, Long, Serializer, String, Uuid


class Order:
    number: int


def packed(order: Order) -> bytes:
    return b"%d" % order.number


class Tagged:
    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], value: Order) -> bytes | None:
        return packed(value)


async def main(order: Order) -> None:
    async with fencepost.Client("127.0.0.1:9092") as kafka:
        assert_type(kafka.producer(compression="zstd"), Producer[bytes, bytes])
        assert_type(kafka.producer(value_serializer=packed), Producer[bytes, Order])
        assert_type(kafka.producer(serializer=packed), Producer[bytes, Order])
        assert_type(kafka.producer(key_serializer=Uuid()), Producer[uuid.UUID, bytes])
        assert_type(kafka.producer(key_serializer=Long(), value_serializer=Tagged()), Producer[int, Order])
        assert_type(kafka.producer(key_serializer=String(), value_serializer=Json(Order)), Producer[str, Order])
        anything: Serializer[Any] = Json()
        numbers: list[Serializer[float]] = [Double()]
        whole: list[Serializer[int]] = [Integer(), Long()]
        raw: Serializer[bytes] = Bytes()
        async with kafka.producer(key_serializer=Long(), value_serializer=Tagged(), linger=0.01) as producer:
            assert_type(await producer.send("t", order, key=7), fencepost.RecordMetadata)
            assert_type(producer.send_nowait("t", None), Delivery)
            await producer.send_many("t", [(1, order), (None, None)])
            await producer.send("t", "text", key=7)  # wrong: value
            await producer.send("t", order, key="7")  # wrong: key
            async with producer.batch() as batch:
                await batch.send("t", order, key=1)
                await batch.send("t", 5)  # wrong: value
"""


def test_types_go_from_the_serializers_to_what_may_be_sent(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    root = Path(__file__).parents[3]
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-color-output",
            "--cache-dir",
            str(root / ".mypy_cache"),
            program,
        ],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    found = {int(line.split(":")[1]) for line in run.stdout.splitlines() if ": error:" in line}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if "# wrong" in line}
    assert found == wrong, run.stdout + run.stderr
