"""Our consumer reads what other people's clients wrote, on our broker and on a Kafka: all codecs, transactions."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
import trio

import fencepost
from fencepost import IsolationLevel, TopicPartition
from tests.interop.confluent_steps import LONG_OPEN

pytestmark = pytest.mark.interop
SECONDS = 100
HEADERS = [("trace", b"\x00\xff"), ("empty", b""), ("none", None)]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(params=["fencepost", "kafka"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Our broker, then a real Kafka (skipped where there is no Java)."""
    if request.param == "fencepost":
        yield request.getfixturevalue("bootstrap")
    else:
        yield request.getfixturevalue("real_kafka").address


def value_of(number: int) -> bytes:
    return b"value %d " % number + b"abc" * (number % 50)


def with_confluent(address: str, topic: str, codec: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "compression.type": codec, "linger.ms": 20, "acks": "all"})
    for number in range(300):
        producer.produce(topic, value_of(number), key=b"%d" % number, headers=HEADERS, timestamp=1_000 + number)
    producer.produce(topic, None, key=b"tombstone", timestamp=2_000)
    assert producer.flush(SECONDS) == 0


def with_aiokafka(address: str, topic: str, codec: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def go() -> None:
        chosen = None if codec == "none" else codec
        producer = AIOKafkaProducer(bootstrap_servers=address, compression_type=chosen, enable_idempotence=True)
        await producer.start()
        try:
            headers = [(name, content) for name, content in HEADERS]
            sent = [
                await producer.send(
                    topic, value_of(n), key=b"%d" % n, headers=headers, timestamp_ms=1_000 + n, partition=0
                )
                for n in range(300)
            ]
            sent.append(await producer.send(topic, None, key=b"tombstone", timestamp_ms=2_000, partition=0))
            await asyncio.gather(*sent)
        finally:
            await producer.stop()

    asyncio.run(go())


def with_kafka_python(address: str, topic: str, codec: str) -> None:
    from kafka import KafkaProducer
    from kafka.codec import has_lz4, has_snappy, has_zstd

    missing = {"snappy": not has_snappy(), "lz4": not has_lz4(), "zstd": not has_zstd()}
    if missing.get(codec):
        pytest.skip(f"kafka-python finds no library for {codec}")
    chosen = None if codec == "none" else codec
    producer = KafkaProducer(bootstrap_servers=address, compression_type=chosen, acks="all", linger_ms=20)
    for n in range(300):
        producer.send(topic, value_of(n), key=b"%d" % n, headers=HEADERS[:2], timestamp_ms=1_000 + n, partition=0)
    producer.send(topic, None, key=b"tombstone", timestamp_ms=2_000, partition=0)
    producer.flush(SECONDS)
    producer.close()


async def one_partition(address: str, topic: str) -> None:
    async with fencepost.Client(address) as client, client.admin() as admin:
        await admin.create_topics(topic, partitions=1)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("write", [with_confluent, with_aiokafka, with_kafka_python])
async def test_every_codec_of_every_client(address: str, name: str, write: Any, codec: str) -> None:
    """L9: records, keys, headers, nulls and timestamps come out as they went in, in all three ways to read."""
    partition = TopicPartition(name, 0)
    with trio.fail_after(SECONDS):
        await one_partition(address, name)
        await trio.to_thread.run_sync(write, address, name, codec)
        async with fencepost.Client(address) as client, client.consumer(name) as consumer:
            records: list[Any] = []
            async for batch in consumer.batches():
                records += batch
                if len(records) == 301:
                    break
            assert [record.offset for record in records] == list(range(301))
            assert [record.value for record in records[:300]] == [value_of(number) for number in range(300)]
            assert [record.key for record in records[:300]] == [b"%d" % number for number in range(300)]
            assert [record.timestamp_ms for record in records] == [*range(1_000, 1_300), 2_000]
            headers = tuple(HEADERS if write is not with_kafka_python else HEADERS[:2])  # it refuses null ones
            assert all(record.headers == headers for record in records[:300])
            assert (records[300].key, records[300].value, records[300].headers) == (b"tombstone", None, ())
            assert consumer.lag() == {partition: 0}
            consumer.seek(partition, 100)
            ones = []
            async for record in consumer:
                ones.append(record)
                if len(ones) == 201:
                    break
            assert ones == records[100:]
            consumer.seek_to_beginning()
            rows: list[Any] = []
            times: list[int] = []
            async for columns in consumer.arrow():
                rows += columns.to_pylist()
                times += columns["timestamp"].cast("int64").to_pylist()
                if len(rows) == 301:
                    break
            assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [
                r[:1] + r[1:3] for r in records
            ]
            assert times == [record.timestamp_ms for record in records]
            assert [(row["key"], row["value"]) for row in rows] == [(r.key, r.value) for r in records]
            pairs = [tuple((h["key"], h["value"]) for h in row["headers"] or ()) for row in rows]
            assert pairs == [record.headers for record in records]


def transactions_with_confluent(address: str, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "transactional.id": f"t-{topic}"})
    producer.init_transactions(SECONDS)
    for number in range(20):
        producer.begin_transaction()
        for entry in range(5):
            producer.produce(topic, b"%d.%d" % (number, entry))
        if number % 3 == 2:
            producer.flush(SECONDS)
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)


def transactions_with_aiokafka(address: str, topic: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def go() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=f"t-{topic}")
        await producer.start()
        try:
            for number in range(20):
                await producer.begin_transaction()
                sent = [await producer.send(topic, b"%d.%d" % (number, entry)) for entry in range(5)]
                await asyncio.gather(*sent)
                await (producer.abort_transaction() if number % 3 == 2 else producer.commit_transaction())
        finally:
            await producer.stop()

    asyncio.run(go())


@pytest.mark.parametrize("write", [transactions_with_confluent, transactions_with_aiokafka])
async def test_aborted_transactions_are_left_out(address: str, name: str, write: Any) -> None:
    """I2: read_committed sees the committed ones, exactly, wherever it begins; read_uncommitted all but markers."""
    everything = [b"%d.%d" % (number, entry) for number in range(20) for entry in range(5)]
    committed = [value for index, value in enumerate(everything) if index // 5 % 3 != 2]
    with trio.fail_after(SECONDS):
        await one_partition(address, name)
        await trio.to_thread.run_sync(write, address, name)
        partition = TopicPartition(name, 0)
        async with fencepost.Client(address) as client:
            # Small answers, so that many begin in the middle of an aborted transaction.
            async with client.consumer(name, max_partition_fetch_bytes=200) as consumer:
                records = await values(consumer, len(committed))
                assert [record.value for record in records] == committed
                await settled(consumer, partition)
                for record in records[::7]:
                    consumer.seek(partition, record.offset)
                    rest = await values(consumer, len(committed) - committed.index(record.value))
                    assert [r.value for r in rest] == committed[committed.index(record.value) :]
            async with client.consumer(name, isolation="read_uncommitted") as consumer:
                assert [record.value for record in await values(consumer, 100)] == everything


async def test_an_open_transaction_holds_readers_back(address: str, name: str) -> None:
    """I1, I6: up to the last stable offset and no further, in fetches, ends, times and lag."""
    from confluent_kafka import Producer

    with trio.fail_after(SECONDS):
        await one_partition(address, name)
        partition = TopicPartition(name, 0)
        later = int(time.time() * 1000) + 60_000  # markers have timestamps of their own: those of now
        producer = Producer({"bootstrap.servers": address, "transactional.id": f"o-{name}", **LONG_OPEN})
        await trio.to_thread.run_sync(producer.init_transactions, SECONDS)
        producer.begin_transaction()
        producer.produce(name, b"first", timestamp=1_000)
        await trio.to_thread.run_sync(producer.commit_transaction, SECONDS)
        producer.begin_transaction()
        producer.produce(name, b"open", timestamp=later)
        await trio.to_thread.run_sync(producer.flush, SECONDS)
        async with fencepost.Client(address) as client, client.consumer(name) as consumer:
            assert [record.value for record in await values(consumer, 1)] == [b"first"]
            with trio.move_on_after(0.7):
                await values(consumer, 1)
                raise AssertionError("a record of an open transaction was given out")
            assert await consumer.end_offsets() == {partition: 2}
            assert await consumer.end_offsets(isolation=IsolationLevel.READ_UNCOMMITTED) == {partition: 3}
            assert await consumer.offsets_for_times({partition: later}) == {partition: None}
            await settled(consumer, partition)
            await trio.to_thread.run_sync(producer.commit_transaction, SECONDS)
            assert [record.value for record in await values(consumer, 1)] == [b"open"]
            found = await consumer.offsets_for_times({partition: later})
            assert found == {partition: (2, later)}


async def values(consumer: fencepost.Consumer[Any, Any], count: int) -> list[Any]:
    found: list[Any] = []
    async for batch in consumer.batches():
        found += batch
        if len(found) >= count:
            return found
    raise AssertionError


async def settled(consumer: fencepost.Consumer[Any, Any], partition: TopicPartition) -> None:
    """The position passes the last markers by itself; then nothing is left to come."""
    end = (await consumer.end_offsets())[partition]
    while consumer.lag() != {partition: 0}:  # noqa: ASYNC110 - nobody tells when a marker was passed
        await trio.sleep(0.01)
    assert await consumer.position(partition) == end


async def test_sessions_and_versions_of_a_real_broker(address: str, name: str) -> None:
    """L13: a broker that keeps sessions is asked for what changed only; ours declines them and is read as well."""
    with trio.fail_after(SECONDS):
        async with fencepost.Client(address) as client:
            async with client.admin() as admin:
                await admin.create_topics(name, partitions=4)
            async with client.producer() as producer, client.consumer(name) as consumer:
                for turn in range(10):
                    await producer.send(name, b"%d" % turn, partition=turn % 4)
                    assert [record.value for record in await values(consumer, 1)] == [b"%d" % turn]
                slots = [slot for slots in consumer._fetcher._slots.values() for slot in slots]
                kept = any(slot.session.established for slot in slots)
                epochs = [slot.session._epoch for slot in slots]
        assert not kept or sum(epochs) > 5, "sessions went on"
