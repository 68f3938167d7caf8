"""Calls of a producer with a wrong or missing argument: a TypeError at once, and nothing is sent."""

import random
from collections.abc import Callable
from typing import Any

import pytest

import fencepost
from tests.kit.scripted_broker import ScriptedBroker

Script = Callable[..., Any]


def client(broker: ScriptedBroker) -> fencepost.Client:
    return fencepost.Client(broker.address, random=random.Random(1), retry_backoff=0.001)


async def test_a_send_without_a_value_wrote_a_tombstone(script: Script) -> None:
    """None as the value deletes a key of a compacted topic, so a program must write it."""
    broker = await script()
    async with client(broker) as kafka, kafka.producer() as producer, producer.batch() as batch:
        for send in (producer.send, producer.submit, producer.send_nowait, batch.send, batch.send_nowait):
            with pytest.raises(TypeError, match="missing 1 required positional argument: 'value'"):
                await send("t")
        await producer.send("t", None, key=b"k")
    assert broker.logs[0] == [None]


async def test_a_topic_of_another_type_is_a_type_error(script: Script) -> None:
    broker = await script()
    async with client(broker) as kafka, kafka.producer() as producer:
        calls: list[Callable[[Any], Any]] = [
            lambda topic: producer.send(topic, b"x"),
            lambda topic: producer.send_many(topic, [(None, b"x")]),
            producer.partitions_for,
        ]
        for call in calls:
            with pytest.raises(TypeError, match="a topic's name must be str, not bytes"):
                await call(b"t")
        with pytest.raises(TypeError, match="a topic's name must be str, not bytes"):
            producer.send_nowait(b"t", b"x")  # type: ignore[arg-type]
        assert (await producer.send("t", b"y")).offset == 0
