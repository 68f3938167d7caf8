"""What mypy says to programs that use typed consumers: the deserializers' types come out of every way to read."""

from pathlib import Path

from tests.kit.type_checker import assert_mypy_says

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
                record.value.nmber  # says: error
            async for batch in consumer.batches():
                assert_type(batch[0], fencepost.ConsumerRecord[int, Order])
                text: str = batch[0].key  # says: error
"""


def test_types_go_from_the_deserializers_to_what_is_read(tmp_path: Path) -> None:
    assert_mypy_says(PROGRAM, tmp_path)
