"""Our producer and librdkafka read each other: every codec, both ways, on our broker and on a real Apache Kafka."""

import random
import uuid
from typing import Any

import pytest
from confluent_kafka import Producer

import fencepost
from tests.interop.confluent_steps import READ_COMMITTED, WAIT_SECONDS, create_topic, read_to_end

pytestmark = pytest.mark.interop
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
LEVELS = [("gzip", 1), ("gzip", 9), ("lz4", 1), ("lz4", 12), ("zstd", -5), ("zstd", 15)]
HEADERS = [("trace", b"\x00\xff"), ("trace", None), ("empty", b""), ("grün", "ü".encode())]
BASE_MS = 1_700_000_000_000


@pytest.fixture(params=["fencepost", "kafka"])
def address(request: pytest.FixtureRequest) -> str:
    """Our broker and Apache Kafka in turn."""
    if request.param == "fencepost":
        return str(request.getfixturevalue("bootstrap"))
    return str(request.getfixturevalue("real_kafka").address)


@pytest.fixture
def topic(address: str) -> str:
    """A topic of one partition that nobody else uses."""
    return create_topic(address, f"n{uuid.uuid4().hex[:12]}")


def awkward_records() -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]]:
    """(key, value, headers, timestamp): nulls, empty and large ones, varints at their edges, time that runs back."""
    chance = random.Random(5)
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]] = [
        (None, None, [], BASE_MS),
        (b"", b"", [], BASE_MS + 5),
        (None, b"v", HEADERS, BASE_MS - 100_000_000_000),
        (b"k", None, [], 0),
    ]
    for size in (1, 63, 64, 8191, 8192, 70_000):
        records.append((chance.randbytes(size), chance.randbytes(size), [], BASE_MS + size * 1000))
    records += [(b"%d" % n, b"value" * 20, HEADERS[: n % 4], BASE_MS + n) for n in range(300)]
    return records


def shown(message: Any) -> tuple[Any, ...]:
    """What a reader of librdkafka got, in the shape of `awkward_records`."""
    return message.key(), message.value(), message.headers() or [], message.timestamp()[1]


async def produce(address: str, topic: str, **options: Any) -> list[int]:
    """Send the awkward records in one batch or many; their offsets."""
    async with fencepost.Client(address) as kafka, kafka.producer(linger=0.02, **options) as producer:
        deliveries = [
            await producer.submit(topic, value, key=key, partition=0, headers=headers, timestamp_ms=when)
            for key, value, headers, when in awkward_records()
        ]
        return [(await delivery.wait()).offset for delivery in deliveries]


@pytest.mark.parametrize("codec", CODECS)
async def test_librdkafka_reads_what_we_send(address: str, topic: str, codec: str) -> None:
    offsets = await produce(address, topic, compression=codec)
    assert offsets == list(range(len(offsets)))
    assert [shown(one) for one in read_to_end(address, topic, [0], READ_COMMITTED)] == awkward_records()


@pytest.mark.parametrize(("codec", "level"), LEVELS)
async def test_every_level_of_compression_is_readable(bootstrap: str, name: str, codec: str, level: int) -> None:
    """KIP-390's levels."""
    topic = create_topic(bootstrap, name)
    await produce(bootstrap, topic, compression=codec, **{f"compression_{codec}_level": level})
    assert [shown(one) for one in read_to_end(bootstrap, topic, [0], READ_COMMITTED)] == awkward_records()


@pytest.mark.parametrize("codec", CODECS)
async def test_we_read_what_librdkafka_sends(address: str, topic: str, codec: str) -> None:
    theirs = Producer({"bootstrap.servers": address, "compression.type": codec, "linger.ms": 20})
    for key, value, headers, when in awkward_records():
        theirs.produce(topic, value, key, 0, timestamp=when or BASE_MS, headers=headers)
    assert theirs.flush(WAIT_SECONDS) == 0
    seen: list[Any] = []
    async with fencepost.Client(address) as kafka, kafka.consumer(topic) as consumer:
        async for batch in consumer.batches():
            seen += batch
            if len(seen) >= len(awkward_records()):
                break
    expected = [(key, value, headers, when or BASE_MS) for key, value, headers, when in awkward_records()]
    assert [(one.key, one.value, list(one.headers), one.timestamp_ms) for one in seen] == expected


async def test_keys_go_to_the_partitions_that_librdkafka_sends_them_to(address: str) -> None:
    topic = create_topic(address, f"n{uuid.uuid4().hex[:12]}", partitions=5)
    keys = [b"", b"a", "Grüße".encode(), *(random.Random(3).randbytes(n) for n in range(1, 40))]
    theirs: dict[bytes, int] = {}
    producer = Producer({"bootstrap.servers": address, "partitioner": "murmur2"})
    for key in keys:
        producer.produce(
            topic, b"", key, on_delivery=lambda _, message: theirs.update({message.key() or b"": message.partition()})
        )
    assert producer.flush(WAIT_SECONDS) == 0
    async with fencepost.Client(address) as kafka, kafka.producer() as ours:
        for key in keys:
            assert (await ours.send(topic, b"", key=key)).partition == theirs[key]


async def test_a_batch_too_large_for_the_topic_arrives_in_parts(address: str) -> None:
    topic = f"n{uuid.uuid4().hex[:12]}"
    async with fencepost.Client(address) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics(topic, partitions=1, configs={"max.message.bytes": "4000"})
        async with kafka.producer(linger=0.05) as producer:
            await producer.send_many(topic, [(None, b"%0500d" % n) for n in range(100)])
            assert producer.metrics().batch_split_total > 0
            with pytest.raises(fencepost.KafkaError) as refused:
                await producer.send(topic, b"x" * 5000)
            assert refused.value.code is fencepost.ErrorCode.MESSAGE_TOO_LARGE
            await producer.send(topic, b"after")
    values = [one.value() for one in read_to_end(address, topic, [0], READ_COMMITTED)]
    assert values == [*(b"%0500d" % n for n in range(100)), b"after"]
