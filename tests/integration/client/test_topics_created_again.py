"""A topic that is deleted and created again under a living consumer: no record of the new topic is skipped.

Kafka's consumers with the classic protocol keep the position of the old topic (KAFKA-12257 is the same confusion of
names in its metadata); with KIP-848 the new topic's id is another assignment.
"""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio

import fencepost
from fencepost import OffsetOutOfRangeError, TopicPartition
from fencepost.client.admin import Admin
from fencepost.client.core.fetch_session import NO_TOPIC_ID
from tests.kit.waiting import soon

OLD, NEW = [b"old%d" % n for n in range(5)], [b"new%d" % n for n in range(8)]


class World:
    """A topic with one partition and the five old records; a consumer has read them."""

    def __init__(self, kafka: fencepost.Client, admin: Admin, topic: str) -> None:
        self.kafka, self.admin, self.topic = kafka, admin, topic
        self.partition = TopicPartition(topic, 0)

    async def fill(self, values: list[bytes]) -> None:
        async with self.kafka.producer() as producer:
            for value in values:
                await producer.send(self.topic, value)

    async def create_again(self, consumer: Any) -> None:
        """Delete the topic; create it again once the consumer's client has seen that, with more records than before."""
        await self.admin.delete_topics(self.topic)
        await soon(lambda: self.topic not in self.kafka._cluster.topics)
        await self.admin.create_topics(self.topic, 1)
        await self.fill(NEW)


@pytest.fixture
async def world(address: str, name: str) -> AsyncIterator[World]:
    async with fencepost.Client(address, retry_backoff_max=0.1) as kafka, kafka.admin() as admin:
        found = World(kafka, admin, name)
        await admin.create_topics(name, 1)
        await found.fill(OLD)
        yield found


async def read(consumer: Any, wanted: list[bytes]) -> list[bytes]:
    """As many records as wanted, and what else is there at once."""
    found: list[bytes] = []
    with trio.fail_after(30):
        while len(found) < len(wanted):
            found += [record.value async for batch in first(consumer) for record in batch]
    return found


async def first(consumer: Any) -> AsyncIterator[Any]:
    async for batch in consumer.batches():
        yield batch
        return


def grouped(world: World, **more: Any) -> Any:
    return world.kafka.consumer(world.topic, group=world.topic, **more)


def alone(world: World, **more: Any) -> Any:
    return world.kafka.consumer(world.topic, **more)


@pytest.mark.parametrize("opened", [grouped, alone])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
async def test_a_consumer_skipped_the_first_records_of_a_topic_that_was_created_again(
    world: World, opened: Callable[..., Any], reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(world, auto_offset_reset=reset) as consumer:
        await consumer.position(world.partition) if opened is alone else None
        if reset == "latest":
            await soon(lambda: bool(consumer.assignment))
            consumer.seek_to_beginning()
        assert await read(consumer, OLD) == OLD
        if opened is grouped:
            await consumer.commit()
        await world.create_again(consumer)
        assert await read(consumer, NEW) == NEW
        if opened is grouped:
            await consumer.commit()
            assert await consumer.committed(world.partition) == {world.partition: len(NEW)}
    lines = [
        r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and "created again" in r.getMessage()
    ]
    assert lines == [
        f"topic {world.topic!r} was deleted and created again. This consumer reads the new topic from its beginning;"
        " its positions in the old topic were 0: 5"
    ]


async def test_an_assigned_partition_is_read_from_its_beginning_too(world: World) -> None:
    async with world.kafka.consumer() as consumer:
        consumer.assign([world.partition])
        assert await read(consumer, OLD) == OLD
        await world.create_again(consumer)
        assert await read(consumer, NEW) == NEW


async def test_with_none_the_program_must_seek(world: World) -> None:
    async with world.kafka.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([world.partition])
        consumer.seek(world.partition, 0)
        assert await read(consumer, OLD) == OLD
        await world.create_again(consumer)
        with pytest.raises(OffsetOutOfRangeError):
            await read(consumer, NEW)
        consumer.seek_to_beginning()
        assert await read(consumer, NEW) == NEW


async def test_auto_commit_does_not_commit_the_old_topics_offset_for_the_new_one(world: World) -> None:
    async with grouped(world, enable_auto_commit=True, auto_commit_interval=0.05) as consumer:
        assert await read(consumer, OLD) == OLD
        await world.create_again(consumer)
        old_id = world.kafka._cluster.topics[world.topic].topic_id
        await soon(lambda: state_of(consumer).topic_id in (NO_TOPIC_ID, old_id))
        assert await consumer.committed(world.partition) in ({world.partition: None}, {world.partition: 0})
        assert await read(consumer, NEW) == NEW


def state_of(consumer: Any) -> Any:
    return next(iter(consumer._fetcher.states.values()))


async def test_reading_to_the_end_means_the_end_of_the_new_topic(world: World) -> None:
    async with alone(world) as consumer:
        await read(consumer, OLD)
        await world.create_again(consumer)
        values = [record.value async for batch in consumer.read_to_end() for record in batch]
    assert values == NEW


async def test_whole_transactions_of_the_new_topic_all_come(world: World) -> None:
    async with grouped(world, isolation="read_uncommitted") as consumer:
        units = consumer.transactions()
        with trio.fail_after(30):
            assert await values_of(units, len(OLD)) == OLD
            await consumer.commit()
            await world.create_again(consumer)
            assert await values_of(units, len(NEW)) == NEW


async def values_of(units: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    async for unit in units:
        found += [record.value for record in unit]
        if len(found) >= count:
            break
    return found
