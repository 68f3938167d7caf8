"""What tests with a schema registry share: writing and reading orders in every way."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer

import fencepost
from tests.kit.schemas import AVRO_ORDER

ORDER = {"id": 7, "item": "tea"}
Connect = Callable[[], SchemaRegistryClient]


def writer(connect: Connect, **conf: Any) -> AvroSerializer:
    return AvroSerializer(connect(), AVRO_ORDER, conf={key.replace("_", "."): value for key, value in conf.items()})


async def write(kafka: fencepost.Client, connect: Connect, topic: str, count: int) -> None:
    async with kafka.producer(value_serializer=writer(connect)) as producer:
        await producer.send_many(topic, [(b"k", {"id": n, "item": "tea"}) for n in range(count)])


async def by_send(kafka: fencepost.Client, topic: str, serializer: Any) -> None:
    async with kafka.producer(value_serializer=serializer) as producer:
        await producer.send(topic, ORDER)


def in_batches(consumer: Any) -> AsyncIterator[Any]:
    return consumer.batches()


def one_by_one(consumer: Any) -> AsyncIterator[Any]:
    return aiter(consumer)


def to_the_end(consumer: Any) -> AsyncIterator[Any]:
    return consumer.read_to_end()


def as_transactions(consumer: Any) -> AsyncIterator[Any]:
    return consumer.transactions()


WAYS_TO_READ = [in_batches, one_by_one, to_the_end, as_transactions]


async def first_values(given: AsyncIterator[Any], count: int) -> list[Any]:
    """The first values, whether records come one by one or in batches or transactions."""
    found: list[Any] = []
    while len(found) < count:
        one = await anext(given)
        found += [record.value for record in ([one] if isinstance(one, fencepost.ConsumerRecord) else one)]
    return found
