"""The broker is killed in the middle and comes back on its port: the client goes on, nothing is lost or doubled."""

from collections.abc import Callable

import pytest
import trio

import fencepost
from fencepost import AbortableError, OutcomeUnknownError, RetriableError
from tests.kit.broker_process import BrokerProcess

StartBroker = Callable[..., BrokerProcess]


ONE_AT_A_TIME = trio.CapacityLimiter(1)
"""A broker that serves again may still be in the hands of the thread that started it."""


async def restart(broker: BrokerProcess) -> None:
    await trio.to_thread.run_sync(broker.restart, limiter=ONE_AT_A_TIME)


async def read_values(kafka: fencepost.Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    async with kafka.consumer(topic) as consumer:
        ends = await consumer.end_offsets()
        with trio.fail_after(100):
            batches = consumer.batches()
            while any([await consumer.position(p) < end for p, end in ends.items()]):
                with trio.move_on_after(0.5):
                    found += [record.value for record in await anext(batches)]
    return found


async def test_idempotent_records_arrive_once_and_in_order(file_broker: BrokerProcess) -> None:
    """P3, P9: the duplicate window survives the crash far enough for what was in flight."""
    async with fencepost.Client(file_broker.address) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics("t", partitions=1)
        async with (
            kafka.producer(batch_size=2_000) as producer,
            trio.open_nursery() as nursery,
            producer.batch() as batch,
        ):
            for n in range(6_000):
                await batch.send("t", b"%06d" % n)
                if n == 2_000:
                    nursery.start_soon(restart, file_broker)
                if n % 50 == 0:
                    await trio.sleep(0.005)
        assert await read_values(kafka, "t") == [b"%06d" % n for n in range(6_000)]


@pytest.mark.parametrize("transaction_version", [2, 1])
async def test_consume_transform_produce_through_two_crashes(
    start_broker: StartBroker, transaction_version: int
) -> None:
    """Exactly once: whatever was in flight when the broker died is either committed whole or done again."""
    broker = start_broker(files=True)
    async with fencepost.Client(broker.address) as kafka, kafka.admin() as admin:
        if transaction_version == 1:
            await admin.update_features({"transaction.version": 1}, downgrade=True)
        await admin.create_topics("in", partitions=2)
        await admin.create_topics("out", partitions=2)
        async with kafka.producer() as producer, producer.batch() as batch:
            for n in range(400):
                await batch.send("in", b"%d" % n, partition=n % 2)
    async with fencepost.Client(broker.address) as kafka, trio.open_nursery() as nursery:
        turns = 0
        consumer = kafka.consumer("in", group="g", session_timeout=6, heartbeat_interval=0.1)
        async with consumer, kafka.transactional_producer("id") as producer:
            assert producer._manager.current is not None
            with trio.fail_after(100):
                async for batch in consumer.batches(max_records=10):
                    turns += 1
                    if turns in (5, 20):
                        nursery.start_soon(restart, broker)
                    try:
                        async with producer.transaction() as txn:
                            await txn.send_many("out", [(None, record.value) for record in batch])
                            await txn.send_offsets(consumer)
                    except AbortableError:
                        continue
                    except OutcomeUnknownError:
                        await producer.reinitialise()
                        continue
                    if set(consumer.lag().values()) == {0}:
                        break
        assert turns > 20
        assert sorted(await read_values(kafka, "out")) == sorted(b"%d" % n for n in range(400))


async def test_a_consumer_reads_on_behind_a_crash(file_broker: BrokerProcess) -> None:
    async with fencepost.Client(file_broker.address) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics("t", partitions=1)
        async with kafka.producer() as producer, kafka.consumer("t") as consumer:
            records = aiter(consumer)
            with trio.fail_after(100):
                await producer.send("t", b"before")
                assert (await anext(records)).value == b"before"
                await restart(file_broker)
                await producer.send("t", b"after")
                assert (await anext(records)).value == b"after"


async def test_a_broker_that_stays_away_ends_every_call_at_its_deadline(broker: BrokerProcess) -> None:
    options = {"default_api_timeout": 8, "request_timeout": 4}
    async with fencepost.Client(broker.address) as patient, patient.admin() as admin:
        await admin.create_topics("t", partitions=1)
    async with (
        fencepost.Client(broker.address, **options) as kafka,
        kafka.producer(delivery_timeout=9) as producer,
        kafka.admin() as admin,
    ):
        await producer.send("t", b"x")
        await trio.to_thread.run_sync(broker.kill)
        with pytest.raises(RetriableError, match="gave up"):
            await producer.send("t", b"y")
        with pytest.raises(RetriableError, match="gave up"):
            await admin.list_topics()


async def test_a_frozen_broker_is_waited_for(broker: BrokerProcess) -> None:
    """A request timeout closes the connection; the record goes out again when the broker is back."""
    async with fencepost.Client(broker.address, request_timeout=0.4) as kafka, kafka.producer() as producer:
        await producer.send("t", b"x")
        broker.pause()

        async def thaw() -> None:
            await trio.sleep(1)
            broker.resume()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(thaw)
            with trio.fail_after(100):
                assert (await producer.send("t", b"y")).offset == 1
