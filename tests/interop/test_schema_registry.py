"""Records with schema ids between this client and confluent-kafka's, in three formats, through broker and registry.

The registry is fencepost's own. `SCHEMA_REGISTRY_URL=http://...` points the tests at one that other people wrote. They
passed against Apicurio Registry 2.5.11.
"""

import json
import os
from collections.abc import Iterator

import pytest
import trio
from confluent_kafka import DeserializingConsumer, SerializingProducer

import fencepost
from fencepost.testing import Broker
from tests.interop.confluent_steps import READ_COMMITTED, WAIT_SECONDS, create_topic
from tests.kit.schemas import FORMATS, Format, open_format

pytestmark = pytest.mark.interop

GIVEN = os.environ.get("SCHEMA_REGISTRY_URL")
WAYS = [(name, in_header) for name in FORMATS for in_header in (False, True)]


@pytest.fixture(scope="module")
def registry_url() -> Iterator[str]:
    """The registry's address."""
    if GIVEN is not None:
        yield GIVEN
        return
    with Broker(schema_registry=True) as broker:
        yield broker.schema_registry_url


@pytest.fixture(params=WAYS, ids=[f"{name}-{'header' if in_header else 'prefix'}" for name, in_header in WAYS])
def way(request: pytest.FixtureRequest, registry_url: str) -> Iterator[tuple[Format, Format, bool]]:
    """A format for keys and one for values, and whether schema ids are in headers."""
    name, in_header = request.param
    if in_header and GIVEN is not None:
        pytest.skip("not every registry has GUIDs")
    with (
        open_format(name, registry_url, in_header=in_header) as keys,
        open_format(name, registry_url, in_header=in_header) as values,
    ):
        yield keys, values, in_header


async def test_what_this_client_writes_confluents_reads(
    bootstrap: str, name: str, way: tuple[Format, Format, bool]
) -> None:
    topic = create_topic(bootstrap, name)
    keys, values, in_header = way
    async with (
        fencepost.Client(bootstrap) as kafka,
        kafka.producer(key_serializer=keys.serializer, value_serializer=values.serializer) as producer,
    ):
        await producer.send(topic, values.order, key=keys.order, headers=[("trace", b"1")])
        await producer.send(topic, None, key=keys.order)
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            **READ_COMMITTED,
            "key.deserializer": keys.deserializer,
            "value.deserializer": values.deserializer,
        }
    )
    try:
        consumer.subscribe([topic])
        first, second = [await trio.to_thread.run_sync(consumer.poll, WAIT_SECONDS) for _ in range(2)]
    finally:
        consumer.close()
    assert (first.key(), first.value()) == (keys.order, values.order)
    assert (second.key(), second.value()) == (keys.order, None)
    names = [header for header, _ in first.headers()]
    assert names == ["trace"] + ["__key_schema_id", "__value_schema_id"] * in_header


async def test_what_confluents_client_writes_this_one_reads(
    bootstrap: str, name: str, way: tuple[Format, Format, bool]
) -> None:
    topic = create_topic(bootstrap, name)
    keys, values, _ = way
    settings = {"key.serializer": keys.serializer, "value.serializer": values.serializer}
    producer = SerializingProducer({"bootstrap.servers": bootstrap, **settings})
    for value in (values.order, None):
        producer.produce(topic, keys.order, value, headers=[("trace", b"1")])
    assert await trio.to_thread.run_sync(producer.flush, WAIT_SECONDS) == 0
    async with (
        fencepost.Client(bootstrap) as kafka,
        kafka.consumer(topic, key_deserializer=keys.deserializer, value_deserializer=values.deserializer) as consumer,
    ):
        found = [(record.key, record.value) async for batch in consumer.read_to_end() for record in batch]
    assert found == [(keys.order, values.order), (keys.order, None)]


@pytest.mark.parametrize(
    ("name_of_format", "index"), [("avro", b""), ("json", b""), ("protobuf", b"\0"), ("protobuf-nested", b"\4\2\0")]
)
async def test_the_bytes_are_the_documented_ones(
    bootstrap: str, name: str, registry_url: str, name_of_format: str, index: bytes
) -> None:
    """Magic byte 0, four bytes of id, and with Protobuf where the message is in its file."""
    topic = create_topic(bootstrap, name)
    with open_format(name_of_format, registry_url) as form:
        async with fencepost.Client(bootstrap) as kafka:
            async with kafka.producer(value_serializer=form.serializer) as producer:
                await producer.send(topic, form.order)
            async with kafka.consumer(topic) as consumer:
                (record,) = [record async for batch in consumer.read_to_end() for record in batch]
    assert record.value[0] == 0
    assert int.from_bytes(record.value[1:5]) > 0
    body = record.value[5:]
    if name_of_format == "avro":
        assert body == b"\x0e\x12green tea"
    elif name_of_format == "json":
        assert json.loads(body) == form.order
    else:
        assert body == index + form.order.SerializeToString()
