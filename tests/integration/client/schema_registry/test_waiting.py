"""Serializers with a schema registry: no request waits in the event loop's thread, and nothing is lost.

The registry is the one in tests/kit, so that a test can hold its answers back. That others read what is written:
tests/interop/test_schema_registry.py.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

import fencepost
import fencepost.sync
from fencepost import TopicPartition
from fencepost.client import DeserializationError
from tests.integration.client.schema_registry.registry_kit import (
    ORDER,
    WAYS_TO_READ,
    Connect,
    as_transactions,
    by_send,
    first_values,
    write,
    writer,
)
from tests.kit.schema_registry import SchemaRegistry
from tests.kit.schemas import AVRO_ORDER
from tests.kit.waiting import soon


async def open_when_asked(registry: SchemaRegistry) -> None:
    """Lets the registry answer once it is asked: it never does if the loop's thread waits for the request."""
    before = len(registry.requests)
    await soon(lambda: len(registry.requests) > before)
    registry.gate.set()


async def by_send_many(kafka: fencepost.Client, topic: str, serializer: Any) -> None:
    async with kafka.producer(value_serializer=serializer) as producer:
        await producer.send_many(topic, [(None, ORDER)])


async def by_key(kafka: fencepost.Client, topic: str, serializer: Any) -> None:
    async with kafka.producer(key_serializer=serializer) as producer, producer.batch() as batch:
        await batch.send(topic, b"", key=ORDER)


async def by_transaction(kafka: fencepost.Client, topic: str, serializer: Any) -> None:
    async with (
        kafka.transactional_producer(topic, value_serializer=serializer) as producer,
        producer.transaction() as txn,
    ):
        await txn.send(topic, ORDER)


@pytest.mark.parametrize("send", [by_send, by_send_many, by_key, by_transaction])
async def test_other_tasks_run_while_a_schema_is_registered(
    kafka: fencepost.Client, registry: SchemaRegistry, connect: Connect, topic: str, send: Callable[..., Any]
) -> None:
    registry.gate.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_when_asked, registry)
        await send(kafka, topic, writer(connect))
    async with kafka.consumer(topic) as consumer:
        assert [len(batch) async for batch in consumer.read_to_end()] == [1]


@pytest.mark.parametrize("read", WAYS_TO_READ)
async def test_other_tasks_run_while_a_schema_is_fetched_once(
    kafka: fencepost.Client, registry: SchemaRegistry, connect: Connect, topic: str, read: Callable[..., Any]
) -> None:
    await write(kafka, connect, topic, 50)
    registry.gate.clear()
    registry.requests.clear()
    deserializer = AvroDeserializer(connect())
    async with (
        kafka.consumer(topic, isolation="read_uncommitted", value_deserializer=deserializer) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(open_when_asked, registry)
        found = await first_values(read(consumer), 50)
    assert found == [{"id": n, "item": "tea"} for n in range(50)]
    assert registry.requests == [f"GET /associations/resources/-/{topic}", "GET /schemas/ids/1"]


@pytest.mark.parametrize("read", WAYS_TO_READ)
async def test_a_read_that_is_cancelled_while_a_schema_is_fetched_loses_nothing(
    kafka: fencepost.Client, registry: SchemaRegistry, connect: Connect, topic: str, read: Callable[..., Any]
) -> None:
    await write(kafka, connect, topic, 5)
    deserializer = AvroDeserializer(connect())
    async with kafka.consumer(topic, isolation="read_uncommitted", value_deserializer=deserializer) as consumer:
        given = read(consumer)
        registry.gate.clear()
        registry.requests.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first_values, given, 5)
            await soon(lambda: bool(registry.requests))
            nursery.cancel_scope.cancel()
        registry.gate.set()
        assert [value["id"] for value in await first_values(given, 5)] == [0, 1, 2, 3, 4]
        assert consumer.metrics().records_consumed_total == (5 if read is not as_transactions else 0)


async def test_a_seek_while_a_schema_is_fetched_outlives_the_cancelled_read(
    kafka: fencepost.Client, registry: SchemaRegistry, connect: Connect, topic: str
) -> None:
    await write(kafka, connect, topic, 5)
    async with kafka.consumer(topic, value_deserializer=AvroDeserializer(connect())) as consumer:
        registry.gate.clear()
        registry.requests.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first_values, consumer.batches(), 5)
            await soon(lambda: bool(registry.requests))
            consumer.seek(TopicPartition(topic, 0), 3)
            nursery.cancel_scope.cancel()
        registry.gate.set()
        assert [value["id"] for value in await first_values(consumer.batches(), 2)] == [3, 4]


async def test_a_send_that_is_cancelled_while_a_schema_is_registered_sends_nothing(
    kafka: fencepost.Client, registry: SchemaRegistry, connect: Connect, topic: str
) -> None:
    registry.gate.clear()
    async with kafka.producer(value_serializer=writer(connect)) as producer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.send, topic, ORDER)
            await soon(lambda: bool(registry.requests))
            nursery.cancel_scope.cancel()
        with pytest.raises(fencepost.WouldBlockError, match="look something up"):
            producer.send_nowait(topic, ORDER)
        registry.gate.set()
        assert (await producer.send(topic, ORDER)).offset == 0
        asked = len(registry.requests)
        assert (await producer.send_nowait(topic, ORDER).wait()).offset == 1
        assert len(registry.requests) == asked


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        (topic_subject_name_strategy, "{topic}-value"),
        (record_subject_name_strategy, "shop.Order"),
        (topic_record_subject_name_strategy, "{topic}-shop.Order"),
        (None, "{topic}-value"),
    ],
)
async def test_the_strategy_names_the_subject(
    kafka: fencepost.Client, connect: Connect, topic: str, strategy: Any, subject: str
) -> None:
    conf = {} if strategy is None else {"subject_name_strategy": strategy}
    await by_send(kafka, topic, writer(connect, **conf))
    assert connect().get_subjects() == [subject.format(topic=topic)]


async def test_the_latest_version_is_asked_for_again_in_time(
    kafka: fencepost.Client, registry: SchemaRegistry, connect: Connect, topic: str
) -> None:
    """`cache.latest.ttl.sec` counts, and the requests that it brings do not wait in the loop's thread either."""
    subject = f"{topic}-value"
    with SchemaRegistryClient({"url": registry.url, "cache.latest.ttl.sec": 0.001}) as quick:
        quick.register_schema(subject, Schema(AVRO_ORDER, "AVRO"))
        conf = {"auto.register.schemas": False, "use.latest.version": True}
        serializer = AvroSerializer(quick, AVRO_ORDER, conf=conf)
        async with kafka.producer(value_serializer=serializer) as producer:
            await producer.send(topic, ORDER)
            newer = json.loads(AVRO_ORDER)
            newer["fields"].append({"name": "note", "type": "string", "default": ""})
            connect().register_schema(subject, Schema(json.dumps(newer), "AVRO"))
            await trio.sleep(0.01)
            registry.gate.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(open_when_asked, registry)
                await producer.send(topic, {**ORDER, "note": "hot"})
    async with kafka.consumer(topic, value_deserializer=AvroDeserializer(connect())) as consumer:
        assert await first_values(consumer.batches(), 2) == [ORDER, {**ORDER, "note": "hot"}]


def test_the_blocking_client_takes_them_too(
    address: str, name: str, registry: SchemaRegistry, connect: Connect
) -> None:
    with fencepost.sync.Client(address, timeout=100) as kafka:
        with kafka.producer(key_serializer=writer(connect), value_serializer=writer(connect)) as producer:
            producer.send(name, ORDER, key=ORDER)
        deserializer = AvroDeserializer(connect())
        with kafka.consumer(name, key_deserializer=deserializer, value_deserializer=deserializer) as consumer:
            record = next(iter(consumer))
            assert (record.key, record.value) == (ORDER, ORDER)
        registry.stop()
        with (
            kafka.consumer(name, value_deserializer=AvroDeserializer(connect())) as consumer,
            pytest.raises(DeserializationError, match="does not answer"),
        ):
            next(iter(consumer))


def test_under_asyncio_other_tasks_run_and_a_cancelled_read_loses_nothing(
    address: str, name: str, registry: SchemaRegistry, connect: Connect
) -> None:
    async def asked(before: int) -> None:
        while len(registry.requests) <= before:  # noqa: ASYNC110 - the registry runs in threads of its own
            await asyncio.sleep(0.001)

    async def opened() -> None:
        await asked(len(registry.requests))
        registry.gate.set()

    async def main() -> None:
        async with fencepost.Client(address) as kafka:
            async with kafka.producer(value_serializer=writer(connect)) as producer:
                registry.gate.clear()
                opening = asyncio.create_task(opened())
                await producer.send(name, ORDER)
                await opening
            async with kafka.consumer(name, value_deserializer=AvroDeserializer(connect())) as consumer:
                registry.gate.clear()
                before = len(registry.requests)
                reading = asyncio.create_task(first_values(consumer.batches(), 1))
                await asked(before)
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
                registry.gate.set()
                assert await first_values(consumer.batches(), 1) == [ORDER]

    asyncio.run(main())
