"""Programs that write: keys and values have the types that the serializers take."""

import uuid
from typing import Any, assert_type

from confluent_kafka.schema_registry.avro import AvroSerializer

import fencepost
from fencepost import sync
from fencepost.client.serializers import Bytes, Double, Integer, Json, Long, Serializer, String, Uuid


class Order:
    number: int = 0


def packed(order: Order) -> bytes:
    return b"%d" % order.number


class Tagged:
    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], value: Order) -> bytes | None:
        return packed(value)


anything: Serializer[Any] = Json()
numbers: list[Serializer[float]] = [Double()]
whole: list[Serializer[int]] = [Integer(), Long()]
raw: Serializer[bytes] = Bytes()


async def what_a_producer_is(kafka: fencepost.Client) -> None:
    assert_type(kafka.producer(compression="zstd"), fencepost.Producer[bytes, bytes])
    assert_type(kafka.producer(value_serializer=packed), fencepost.Producer[bytes, Order])
    assert_type(kafka.producer(key_serializer=Uuid()), fencepost.Producer[uuid.UUID, bytes])
    assert_type(kafka.producer(key_serializer=Long(), value_serializer=Tagged()), fencepost.Producer[int, Order])
    assert_type(kafka.producer(key_serializer=String(), value_serializer=Json(Order)), fencepost.Producer[str, Order])
    assert_type(kafka.transactional_producer("x"), fencepost.TransactionalProducer[bytes, bytes])
    assert_type(
        kafka.two_phase_producer("x", key_serializer=String(), value_serializer=packed),
        fencepost.TwoPhaseProducer[str, Order],
    )
    kafka.producer(value_serializer=7)  # refused
    kafka.producer(value_serializer=int)  # refused


async def with_a_schema_registry(kafka: fencepost.Client, avro: AvroSerializer) -> None:
    async with kafka.producer(key_serializer=String(), value_serializer=avro) as producer:
        await producer.send("t", {"id": 7}, key="k")
        await producer.send("t", {"id": 7}, key=7)  # refused


async def records(kafka: fencepost.Client, order: Order) -> None:
    async with kafka.producer(key_serializer=Long(), value_serializer=Tagged(), linger=0.01) as producer:
        assert_type(await producer.send("t", order, key=7), fencepost.RecordMetadata)
        assert_type(producer.send_nowait("t", None), fencepost.Delivery)
        await producer.send_many("t", [(1, order), (None, None)])
        await producer.send("t", "text", key=7)  # refused
        await producer.send("t", order, key="7")  # refused
        await producer.send_many("t", [("1", order)])  # refused
        async with producer.batch() as batch:
            await batch.send("t", order, key=1)
            await batch.send("t", 5)  # refused


async def transactions(kafka: fencepost.Client, order: Order) -> None:
    async with (
        kafka.transactional_producer("x", key_serializer=String(), value_serializer=packed) as producer,
        producer.transaction() as txn,
    ):
        assert_type(txn, fencepost.Transaction[str, Order])
        await txn.send("t", order, key="7")
        await txn.send_many("t", [("7", order), (None, None)])
        await txn.send("t", b"7")  # refused
        await txn.send("t", order, key=7)  # refused
    async with kafka.two_phase_producer("x", value_serializer=packed) as decided, decided.transaction() as txn_2:
        await txn_2.send("t", order, key=b"7")
        await txn_2.send("t", b"7")  # refused


def without_trio(kafka: sync.Client, order: Order) -> None:
    with kafka.producer(key_serializer=Long(), value_serializer=packed) as producer:
        assert_type(producer, sync.Producer[int, Order])
        producer.send("t", order, key=7)
        producer.send("t", order, key=b"7")  # refused
        with producer.batch() as batch:
            batch.send("t", b"7")  # refused
    with kafka.transactional_producer("x", value_serializer=packed) as writer, writer.transaction() as txn:
        assert_type(txn, sync.Transaction[bytes, Order])
        txn.send("t", order)
        txn.send("t", "text")  # refused
        txn.send_offsets("consumer")  # refused
