"""A `seek` while a commit of the same partition is under way comes after that commit, whenever the answer arrives.

A real broker, and a commit that the test keeps back once the broker has carried it out.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import fencepost
from fencepost import AbortableError, TopicPartition
from fencepost.client.group import group_client
from tests.integration.client.group_kit import PATIENCE_S, committed, create


class Held:
    """Commits are carried out, and their answers are kept back until `go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._go = trio.Event()
        self._go.set()
        self._there = trio.Event()
        real = group_client.commit_offsets

        async def commit_offsets(*args: Any) -> None:
            await real(*args)
            self._there.set()
            await self._go.wait()

        monkeypatch.setattr(group_client, "commit_offsets", commit_offsets)

    @asynccontextmanager
    async def commit(self, consumer: fencepost.Consumer) -> AsyncIterator[None]:
        """A commit whose answer comes at the end of the block."""
        self._go, self._there = trio.Event(), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.commit)
            await self._there.wait()
            yield
            self._go.set()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


@asynccontextmanager
async def five_read(
    kafka: fencepost.Client, name: str, here: TopicPartition
) -> AsyncIterator[
    tuple[fencepost.Consumer, fencepost.TransactionalProducer, AsyncIterator[list[fencepost.ConsumerRecord]]]
]:
    """A consumer that has been given the first five of twenty records, five at a time, and a producer beside it."""
    await create(kafka, name, partitions=1, records=20)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(group=name) as consumer, kafka.transactional_producer(name) as producer:
            consumer.assign([here])
            batches = consumer.batches(max_records=5)
            await anext(batches)
            yield consumer, producer, batches


async def abort(consumer: fencepost.Consumer, producer: fencepost.TransactionalProducer) -> None:
    with pytest.raises(AbortableError):
        async with producer.transaction(consumer=consumer):
            raise AbortableError("taken back")


async def test_an_abort_goes_back_to_the_place_sought(kafka: fencepost.Client, name: str, held: Held) -> None:
    here = TopicPartition(name, 0)
    async with five_read(kafka, name, here) as (consumer, producer, batches):
        async with held.commit(consumer):
            consumer.seek(here, 2)
        assert await consumer.committed(here) == {here: 5}
        await abort(consumer, producer)
        assert await consumer.position(here) == 2
        assert [record.offset for record in await anext(batches)] == [2, 3, 4, 5, 6]
        await abort(consumer, producer)
        assert [record.offset for record in await anext(batches)] == [2, 3, 4, 5, 6]
        await consumer.commit()
        assert await consumer.committed(here) == {here: 7}


async def test_but_first_to_what_was_given_since_the_commit_began(
    kafka: fencepost.Client, name: str, held: Held
) -> None:
    here = TopicPartition(name, 0)
    async with five_read(kafka, name, here) as (consumer, producer, batches):
        async with held.commit(consumer):
            assert [record.offset for record in await anext(batches)] == [5, 6, 7, 8, 9]
            consumer.seek(here, 15)
        await abort(consumer, producer)
        assert [record.offset for record in await anext(batches)] == [5, 6, 7, 8, 9]


async def test_a_seek_behind_send_offsets_stands_when_the_transaction_commits(
    kafka: fencepost.Client, name: str
) -> None:
    here = TopicPartition(name, 0)
    async with five_read(kafka, name, here) as (consumer, producer, batches):
        async with producer.transaction() as txn:
            await txn.send_offsets(consumer)
            consumer.seek(here, 12)
        assert await consumer.committed(here) == {here: 5}
        await abort(consumer, producer)
        assert await consumer.position(here) == 12
        assert [record.offset for record in await anext(batches)] == [12, 13, 14, 15, 16]


async def test_a_commit_that_fails_leaves_all_as_it_was(
    kafka: fencepost.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = TopicPartition(name, 0)
    async with five_read(kafka, name, here) as (consumer, producer, batches):

        async def refuse(*_: Any) -> None:
            consumer.seek(here, 12)
            raise fencepost.KafkaError("not now")

        monkeypatch.setattr(group_client, "commit_offsets", refuse)
        with pytest.raises(fencepost.KafkaError, match="not now"):
            await consumer.commit()
        await abort(consumer, producer)
        assert [record.offset for record in await anext(batches)] == [0, 1, 2, 3, 4]


async def test_auto_commit_does_not_take_the_seek_back(kafka: fencepost.Client, name: str, held: Held) -> None:
    """What the block's end commits is the place sought, also where the commit before was further."""
    await create(kafka, name, partitions=1, records=20)
    here = TopicPartition(name, 0)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, enable_auto_commit=True) as consumer:
            await anext(consumer.batches(max_records=5))
            async with held.commit(consumer):
                consumer.seek(here, 2)
        assert await committed(kafka, name, here) == 2


async def test_whole_transactions_given_or_sought_during_a_commit_come_after_it(
    kafka: fencepost.Client, name: str, held: Held
) -> None:
    """a is committed while b is given: an abort gives b once more. Then c is sought while that commit is under way."""
    await create(kafka, name, partitions=1, records=0)
    here = TopicPartition(name, 0)
    async with kafka.transactional_producer(name) as producer:
        for value in (b"a", b"b", b"c"):
            async with producer.transaction() as txn:
                await txn.send(name, value)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(group=name) as consumer, kafka.transactional_producer(name) as producer:
            consumer.assign([here])
            units = consumer.transactions()

            async def values() -> list[bytes]:
                return [record.value for record in await anext(units)]

            assert await values() == [b"a"]
            async with held.commit(consumer):
                assert await values() == [b"b"]
            await abort(consumer, producer)
            assert await values() == [b"b"]
            async with held.commit(consumer):
                consumer.seek(here, 4)
                assert await values() == [b"c"]
            await abort(consumer, producer)
            assert await values() == [b"c"]
            await consumer.commit()
            assert await consumer.committed(here) == {here: 6}
