"""Records that a topic never accepts: the loop of README ends with an error that names them, and does not repeat."""

import logging
from collections.abc import AsyncIterator

import pytest
import trio

import fencepost
from fencepost import AbortableError, ErrorCode, RecordRejectedError, TopicPartition
from fencepost.client.admin import NewTopic
from tests.integration.client.transaction_kit import read_all


@pytest.fixture
async def kafka(address_of_both: str) -> AsyncIterator[fencepost.Client]:
    async with fencepost.Client(address_of_both) as client:
        yield client


async def create(kafka: fencepost.Client, name: str, **configs: str) -> None:
    async with kafka.admin() as admin:
        settings = {setting.replace("_", "."): value for setting, value in configs.items()}
        await admin.create_topics([NewTopic(name, 1, configs=settings)])


async def fill(kafka: fencepost.Client, topic: str, *values: bytes) -> None:
    async with kafka.producer() as producer:
        for value in values:
            await producer.send(topic, value)


async def copy_as_in_readme(kafka: fencepost.Client, source: str, target: str) -> int:
    """README's loop until the first commit; returns how often a transaction was aborted and begun again."""
    again = 0
    async with (
        kafka.consumer(source, group=source) as consumer,
        kafka.transactional_producer(source) as producer,
    ):
        async for batch in consumer.batches(max_records=500, max_wait=0.1):
            try:
                async with producer.transaction() as txn:
                    for record in batch:
                        await txn.send(target, record.value, key=record.key)
                    await txn.send_offsets(consumer)
                return again
            except AbortableError:
                again += 1
                assert again < 3, "the loop repeats"
    return again


async def test_the_loop_of_readme_repeated_a_record_that_is_too_large_for_ever(
    kafka: fencepost.Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In Kafka RecordTooLargeException is neither retriable nor a TransactionAbortableException (KIP-1050)."""
    source, target = f"{name}-in", f"{name}-out"
    await create(kafka, source)
    await create(kafka, target, max_message_bytes="1000")
    await fill(kafka, source, b"x" * 2000)
    says = r"-out-0 rejected a batch \(1 of 1 records\)"
    with pytest.raises(RecordRejectedError, match=says) as rejected, trio.fail_after(20):
        await copy_as_in_readme(kafka, source, target)
    error = rejected.value
    assert (error.code, error.retriable, error.partition) == (
        ErrorCode.MESSAGE_TOO_LARGE,
        False,
        TopicPartition(target, 0),
    )
    assert [record.value for record in error.records] == [b"x" * 2000]
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and "was aborted" in r.getMessage()]
    assert len(lines) == 1
    assert "The same records or offsets will fail again" in lines[0]
    async with kafka.admin() as admin:
        await admin.incremental_alter_configs({"max.message.bytes": "10000"}, topic=target)
    assert await copy_as_in_readme(kafka, source, target) == 0, "the input was not passed over"
    assert await read_all(kafka, target) == [b"x" * 2000]


async def test_an_invalid_record_is_named_and_its_producer_goes_on(kafka: fencepost.Client, name: str) -> None:
    """A compacted topic accepts no record without a key; the answer names which of the batch that is (KIP-467)."""
    await create(kafka, name, cleanup_policy="compact")
    async with kafka.transactional_producer(name) as producer:

        async def commit() -> None:
            async with producer.transaction() as txn:
                await txn.send(name, b"good", key=b"k")
                await txn.send(name, b"bad", headers={"h": b"1"})

        with pytest.raises(RecordRejectedError) as rejected:
            await commit()
        assert [(r.key, r.value, r.headers) for r in rejected.value.records] == [(None, b"bad", (("h", b"1"),))]
        async with producer.transaction() as txn:
            await txn.send(name, b"good", key=b"k")
    assert await read_all(kafka, name) == [b"good"]


async def test_a_timestamp_that_the_topic_rejects_is_named_without_a_transaction(
    kafka: fencepost.Client, name: str
) -> None:
    """`message.timestamp.after.max.ms` (KIP-937)."""
    await create(kafka, name, message_timestamp_after_max_ms="1000")
    async with kafka.producer() as producer:
        with pytest.raises(RecordRejectedError) as rejected:
            await producer.send(name, b"late", timestamp_ms=9_000_000_000_000)
    assert rejected.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [record.timestamp_ms for record in rejected.value.records] == [9_000_000_000_000]


async def test_a_record_above_the_clients_own_limit_is_the_same_error(kafka: fencepost.Client, name: str) -> None:
    await create(kafka, name)
    async with kafka.producer(max_request_size=1024) as producer:
        with pytest.raises(RecordRejectedError, match="max_request_size") as rejected:
            await producer.send(name, b"x" * 2000, key=b"k")
    assert (rejected.value.partition, rejected.value.records[0].key) == (None, b"k")


async def test_what_comes_behind_a_refused_batch_fails_with_it(kafka: fencepost.Client, name: str) -> None:
    """It waited for an epoch, which comes only after the abort: the end of the block took delivery.timeout.ms."""
    await create(kafka, name, max_message_bytes="1000")
    options = {"max_in_flight_requests_per_connection": 1, "batch_size": 700}
    async with kafka.transactional_producer(name, **options) as producer:

        async def refused() -> None:
            async with producer.transaction() as txn:
                await txn.send(name, b"x" * 2000)
                await txn.send(name, b"behind" * 100)

        with trio.fail_after(60), pytest.raises(RecordRejectedError, match="MESSAGE_TOO_LARGE"):
            await refused()
        async with producer.transaction() as after:
            await after.send(name, b"next")
    assert await read_all(kafka, name) == [b"next"]
