"""Programs that read: the deserializers' types come out of every way to read, and a null key or value is None."""

import json
import uuid
from typing import Any, assert_type

from confluent_kafka.schema_registry.avro import AvroDeserializer

import fencepost
from fencepost import sync
from fencepost.client.serializers import Integer, Json, Uuid


class Order:
    number: int = 0


def price(data: bytes) -> float:
    return float(data)


async def what_a_consumer_is(kafka: fencepost.Client) -> None:
    assert_type(kafka.consumer("t"), fencepost.Consumer[bytes, bytes])
    assert_type(kafka.consumer("t", value_deserializer=price), fencepost.Consumer[bytes, float])
    assert_type(kafka.consumer("t", value_deserializer=json.loads), fencepost.Consumer[bytes, Any])
    assert_type(kafka.consumer("t", value_deserializer=lambda data: int(data)), fencepost.Consumer[bytes, int])
    assert_type(kafka.consumer("t", key_deserializer=Uuid()), fencepost.Consumer[uuid.UUID, bytes])
    kafka.consumer("t", value_deserializer=7)  # refused
    kafka.consumer("t", value_deserializer=str.encode)  # refused


async def with_a_schema_registry(kafka: fencepost.Client, avro: AvroDeserializer) -> None:
    async with kafka.consumer("t", value_deserializer=avro) as consumer:
        async for record in consumer:
            assert_type(record.key, bytes | None)
            order = record.value
            assert isinstance(order, dict)


async def bytes_may_be_null(consumer: fencepost.Consumer) -> None:
    async for record in consumer:
        assert_type(record.key, bytes | None)
        assert_type(record.value, bytes | None)
        assert_type(record.offset, int)
        record.value.decode()  # refused
        if record.value is not None:
            record.value.decode()


async def every_way_to_read(kafka: fencepost.Client) -> None:
    async with kafka.consumer("t", key_deserializer=Integer(), value_deserializer=Json(Order)) as consumer:
        async for record in consumer:
            assert_type(record, fencepost.ConsumerRecord[int, Order])
            assert_type(record.value, Order | None)
        async for batch in consumer.batches(max_records=5):
            assert_type(batch, fencepost.ConsumerBatch[int, Order])
            assert_type(batch[0].key, int | None)
            assert_type([record.value for record in batch], list[Order | None])
            batch[0].key.upper()  # refused
        async for batch in consumer.read_to_end():
            assert_type(batch[0], fencepost.ConsumerRecord[int, Order])
        async for unit in consumer.transactions():
            for record in unit:
                assert_type(record, fencepost.ConsumerRecord[int, Order])


def without_trio(kafka: sync.Client) -> None:
    assert_type(kafka.consumer("t"), sync.Consumer[bytes, bytes])
    with kafka.consumer("t", key_deserializer=Integer(), value_deserializer=Json(Order)) as consumer:
        for record in consumer:
            assert_type(record, fencepost.ConsumerRecord[int, Order])
            print(record.value.number)  # refused
        for batch in consumer.batches():
            assert_type(batch[0].value, Order | None)
        for unit in consumer.transactions():
            assert_type([record.key for record in unit], list[int | None])


async def the_same_on_both_sides(consumer: fencepost.Consumer, producer: fencepost.Producer) -> None:
    consumer.assign(await consumer.partitions_for("t"))
    for partition, info in (await producer.partitions_for("t")).items():
        assert_type(partition, fencepost.TopicPartition)
        assert_type(info.leader, int)
    assert_type(consumer.metrics().prometheus(), dict[str, float])
    assert_type(producer.metrics().prometheus(), dict[str, float])
    assert_type(consumer.paused, set[fencepost.TopicPartition])
    consumer.paused()  # refused
