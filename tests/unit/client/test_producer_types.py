"""What mypy says to programs that use typed producers: the types go through, and mistakes are found."""

from pathlib import Path

from tests.kit.type_checker import assert_mypy_says

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
            await producer.send("t", "text", key=7)  # says: error
            await producer.send("t", order, key="7")  # says: error
            async with producer.batch() as batch:
                await batch.send("t", order, key=1)
                await batch.send("t", 5)  # says: error
"""


def test_types_go_from_the_serializers_to_what_may_be_sent(tmp_path: Path) -> None:
    assert_mypy_says(PROGRAM, tmp_path)
