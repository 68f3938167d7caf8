"""What goes wrong with a schema registry is said by name, with what to do, and costs no other record."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer, AvroDeserializer

import fencepost
from fencepost import TopicPartition
from fencepost.client import DeserializationError, SerializationError
from tests.integration.client.schema_registry.registry_kit import (
    WAYS_TO_READ,
    Connect,
    by_send,
    first_values,
    one_by_one,
    write,
    writer,
)
from tests.kit.schema_registry import SchemaRegistry


async def test_a_rejected_schema_says_what_to_do(
    kafka: fencepost.Client, registry: SchemaRegistry, connect: Connect, topic: str
) -> None:
    async def refusal(**conf: Any) -> str:
        with pytest.raises(SerializationError) as told:
            await by_send(kafka, topic, writer(connect, **conf))
        return str(told.value).removeprefix(f"a value for {topic!r} cannot be serialized: ")

    assert await refusal(auto_register_schemas=False) == (
        f"the schema registry does not have the schema (Subject '{topic}-value' not found), and the serializer does "
        "not register it. Register the schema, or set auto.register.schemas"
    )
    connect().register_schema(f"{topic}-value", Schema('"string"', "AVRO"))
    assert "rejects the schema: it is incompatible with an earlier version (Schema being reg" in await refusal()
    registry.refuse_with = 401
    assert await refusal() == (
        "the schema registry refuses this client (HTTP 401: as the test wants it). Check basic.auth.user.info or "
        "bearer.auth.* of the SchemaRegistryClient"
    )
    registry.refuse_with = 501
    assert await refusal() == "the schema registry answered HTTP 501: as the test wants it. See its log for the cause"
    registry.stop()
    assert await refusal() == (
        f"the schema registry at {registry.url} does not answer ([Errno 111] Connection refused). Start it or correct "
        "its URL, and try again"
    )
    async with kafka.consumer(topic) as consumer:
        assert [batch async for batch in consumer.read_to_end()] == []


async def test_a_value_that_does_not_fit_the_schema_is_refused_by_name(
    kafka: fencepost.Client, connect: Connect, topic: str
) -> None:
    with pytest.raises(SerializationError, match="item"):
        async with kafka.producer(value_serializer=writer(connect)) as producer:
            await producer.send(topic, {"id": 1})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b'{"id": 7}',
            "its bytes do not begin with magic byte 0 and a schema id, and no header has the id. It was not written "
            "with a schema registry: use the deserializer of its own format",
        ),
        (
            b"\0\0\0\0\x2afive",
            "the schema registry does not have schema 42 (Schema 42 not found). Check that the producer uses the "
            "same registry, and that the schema was not deleted there",
        ),
    ],
)
async def test_a_record_without_a_schema_says_what_to_do(
    kafka: fencepost.Client, connect: Connect, topic: str, data: bytes, message: str
) -> None:
    async with kafka.producer() as producer:
        await producer.send(topic, data)
    await write(kafka, connect, topic, 1)
    async with kafka.consumer(topic, value_deserializer=AvroDeserializer(connect())) as consumer:
        for _ in range(2):
            with pytest.raises(DeserializationError) as told:
                await first_values(one_by_one(consumer), 1)
            expected = f"{topic}-0: record 0: a value of {topic!r} cannot be read: {message} (Fetch)"
            assert str(told.value) == expected
        consumer.seek(TopicPartition(topic, 0), 1)
        assert await first_values(one_by_one(consumer), 1) == [{"id": 0, "item": "tea"}]


async def test_a_damaged_record_does_not_spoil_others_of_its_schema(
    kafka: fencepost.Client, connect: Connect, topic: str
) -> None:
    async with kafka.producer() as producer:
        await producer.send(topic, b"\0\0\0\0\1\x0e\x7f")
    await write(kafka, connect, topic, 2)
    async with kafka.consumer(topic, value_deserializer=AvroDeserializer(connect())) as consumer:
        batch = await anext(consumer.batches())
        with pytest.raises(DeserializationError, match="record 0"):
            list(batch)
        assert [batch[1].value["id"], batch[2].value["id"]] == [0, 1]


async def test_reading_goes_on_at_the_same_record_when_the_registry_is_back(
    kafka: fencepost.Client, registry: SchemaRegistry, connect: Connect, topic: str
) -> None:
    await write(kafka, connect, topic, 2)
    async with kafka.consumer(topic, value_deserializer=AvroDeserializer(connect())) as consumer:
        registry.stop()
        with pytest.raises(DeserializationError, match="does not answer") as told:
            await first_values(one_by_one(consumer), 1)
        assert told.value.position == 0
        registry.start()
        assert [value["id"] for value in await first_values(one_by_one(consumer), 2)] == [0, 1]


@pytest.mark.parametrize("read", WAYS_TO_READ)
async def test_a_registry_that_is_away_is_asked_once_for_a_batch(
    kafka: fencepost.Client, registry: SchemaRegistry, connect: Connect, topic: str, read: Callable[..., Any]
) -> None:
    """Not once for each record: a batch would take minutes to fail."""
    await write(kafka, connect, topic, 50)
    registry.refuse_with = 401
    registry.requests.clear()
    deserializer = AvroDeserializer(connect())
    async with kafka.consumer(topic, isolation="read_uncommitted", value_deserializer=deserializer) as consumer:
        with pytest.raises(SerializationError, match="refuses this client"):
            await first_values(read(consumer), 1)
    assert len(registry.requests) == 1


async def test_serializers_of_asyncio_are_refused(kafka: fencepost.Client, connect: Connect) -> None:
    asynchronous = object.__new__(AsyncAvroDeserializer)
    with pytest.raises(fencepost.ConfigError, match=r"value_deserializer.*give confluent-kafka's class without Async"):
        kafka.consumer("t", value_deserializer=asynchronous)
