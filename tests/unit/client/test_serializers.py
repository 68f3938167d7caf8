"""Keys and values that are not bytes: what the producer does with them; they are written as Java writes them."""

import random
import struct
import uuid
from collections.abc import Callable
from typing import Any

import pytest

import fencepost
from fencepost.client.serializers import DeserializeCall, Double, Integer, Json, Long, SerializationError, String, Uuid
from tests.kit.scripted_broker import ScriptedBroker

Script = Callable[..., Any]


def client(broker: ScriptedBroker, **options: Any) -> fencepost.Client:
    return fencepost.Client(broker.address, random=random.Random(1), **{"retry_backoff": 0.001, **options})


async def test_serializers_see_topic_and_headers(script: Script) -> None:
    broker = await script()

    class Tagged:
        def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], value: str) -> bytes | None:
            headers.append(("schema", topic.encode()))
            return value.encode() if value else None

    async with client(broker) as kafka, kafka.producer(key_serializer=Long(), value_serializer=Tagged()) as producer:
        await producer.send("t", "hello", key=7, headers=[("a", b"1")])
        await producer.send("t", "", key=8)
        await producer.send("t", None, key=None)
    assert broker.logs[0] == [b"hello", None, None]


async def test_what_is_not_bytes_is_refused_before_it_reaches_the_buffer(script: Script) -> None:
    broker = await script()
    async with client(broker) as kafka, kafka.producer() as producer:
        with pytest.raises(TypeError, match="value must be bytes, not str"):
            await producer.send("t", "text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="header"):
            await producer.send("t", b"", headers=[(b"name", b"")])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="from 0 to"):
            await producer.send("t", b"", timestamp_ms=-1)
        assert (await producer.send("t", memoryview(b"view"))).offset == 0  # type: ignore[arg-type]
    async with client(broker) as kafka, kafka.producer(value_serializer=Integer()) as producer:
        with pytest.raises(SerializationError, match="value for 't'"):
            await producer.send("t", 2**40)
        assert producer.metrics().buffer_available_bytes == producer.metrics().buffer_total_bytes


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (String(), "grün", "grün".encode()),
        (Integer(), -2, b"\xff\xff\xff\xfe"),
        (Long(), 1, b"\0\0\0\0\0\0\0\1"),
        (Double(), 1.5, struct.pack(">d", 1.5)),
        (Uuid(), uuid.UUID(int=5), b"00000000-0000-0000-0000-000000000005"),
        (Json(), {"a": [1, None]}, b'{"a":[1,null]}'),
    ],
)
def test_serializers_write_what_javas_write_and_read_it_again(kind: Any, value: Any, data: bytes) -> None:
    assert kind.serialize("t", [], value) == data
    assert kind.deserialize("t", [], data) == value


def test_bytes_of_another_length_are_no_number() -> None:
    read = DeserializeCall(Long(), "key")
    with pytest.raises(SerializationError, match="8 are needed"):
        read("t", [], b"123")
