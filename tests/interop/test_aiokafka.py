"""Producing, consuming, groups and transactions through aiokafka, which speaks older versions of the protocol."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced

from tests.interop.confluent_steps import create_topic

pytestmark = pytest.mark.interop
WAIT_SECONDS = 100


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run one asyncio program with a deadline."""

    async def with_deadline() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await main

    asyncio.run(with_deadline())


def consumer_of(bootstrap: str, *topics: str, group: str | None = None, **options: Any) -> AIOKafkaConsumer:
    """A consumer from the beginning that commits only when asked."""
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=60_000,
        heartbeat_interval_ms=500,
        **options,
    )


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(bootstrap: str, name: str, codec: str | None) -> None:
    create_topic(bootstrap, name)

    async def main() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=codec, enable_idempotence=True
        ) as producer:
            for number in range(100):
                sent = await producer.send(name, b"value" * 10, key=b"%d" % number, headers=[("h", b"\x00")])
            assert (await sent).offset == 99
        async with consumer_of(bootstrap, name) as consumer:
            seen = [await consumer.getone() for _ in range(100)]
        assert [one.key for one in seen] == [b"%d" % number for number in range(100)]
        assert all(one.value == b"value" * 10 and one.headers == (("h", b"\x00"),) for one in seen)

    run(main())


def test_a_group_shares_partitions_and_goes_on_where_it_stood(bootstrap: str, name: str) -> None:
    create_topic(bootstrap, name, partitions=2)

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for number in range(10):
                await producer.send_and_wait(name, b"%d" % number, partition=number % 2)
            async with consumer_of(bootstrap, name, group=name) as first:
                assert {(await first.getone()).value for _ in range(10)} == {b"%d" % n for n in range(10)}
                await first.commit()
                async with consumer_of(bootstrap, name, group=name) as second:
                    while not len(first.assignment()) == len(second.assignment()) == 1:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
            await producer.send_and_wait(name, b"new", partition=1)
            async with consumer_of(bootstrap, name, group=name) as third:
                assert (await third.getone()).value == b"new"

    run(main())


def test_transactions_commit_abort_and_carry_offsets(bootstrap: str, name: str) -> None:
    source, target = create_topic(bootstrap, f"{name}-in"), create_topic(bootstrap, f"{name}-out")
    place = TopicPartition(source, 0)

    async def main() -> None:
        async with (
            AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name) as producer,
            consumer_of(bootstrap, target, isolation_level="read_committed") as reader,
        ):
            async with producer.transaction():
                await producer.send(source, b"in")
            await producer.begin_transaction()
            await producer.send_and_wait(target, b"aborted")
            await producer.send_offsets_to_transaction({place: 7}, name)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(target, b"committed")
                await producer.send_offsets_to_transaction({place: 1}, name)
            assert (await reader.getone()).value == b"committed"
            async with consumer_of(bootstrap, source, group=name) as member:
                assert await member.committed(place) == 1

    run(main())


def test_a_successor_fences_the_older_producer(bootstrap: str, name: str) -> None:
    create_topic(bootstrap, name)

    async def main() -> None:
        older = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        await older.start()
        await older.begin_transaction()
        await older.send_and_wait(name, b"lost")
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name) as successor:
            with pytest.raises(ProducerFenced):
                await older.send_and_wait(name, b"too late")
            async with successor.transaction():
                await successor.send(name, b"seen")
        with contextlib.suppress(ProducerFenced):  # it may say so once more
            await older.stop()
        async with consumer_of(bootstrap, name, isolation_level="read_committed") as reader:
            assert (await reader.getone()).value == b"seen"

    run(main())
