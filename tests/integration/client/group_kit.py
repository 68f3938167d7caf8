"""Groups for the client's tests: a broker that misses members soon, the ways of being a member, what one is told."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

import fencepost
from fencepost import TopicPartition
from tests.kit.settings import QUICK_GROUPS

QUICKER_GROUPS = {
    **QUICK_GROUPS,
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "45000",  # a machine that stands still for some seconds expels nobody
}
GIVEN = os.environ.get("FENCEPOST_TEST_BOOTSTRAP")
PATIENCE_S = 100
COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}
CONSUMER = {"group_protocol": "consumer"}
WAYS = {"eager": {}, "cooperative": COOPERATIVE, "consumer": CONSUMER}


class Heard:
    """What the callbacks of a member were told."""

    def __init__(self) -> None:
        self.words: list[tuple[str, list[int]]] = []

    def options(self) -> dict[str, object]:
        return {"on_assigned": self.assigned, "on_revoked": self.revoked, "on_lost": self.lost}

    async def assigned(self, consumer: fencepost.Consumer, partitions: frozenset[TopicPartition]) -> None:
        assert partitions <= consumer.assignment
        self.words.append(("assigned", sorted(one.partition for one in partitions)))

    async def revoked(self, consumer: fencepost.Consumer, partitions: frozenset[TopicPartition]) -> None:
        assert partitions <= consumer.assignment, "a commit still counts"
        self.words.append(("revoked", sorted(one.partition for one in partitions)))

    async def lost(self, consumer: fencepost.Consumer, partitions: frozenset[TopicPartition]) -> None:
        assert not partitions & consumer.assignment
        self.words.append(("lost", sorted(one.partition for one in partitions)))


@asynccontextmanager
async def reading(consumer: fencepost.Consumer, into: list[bytes] | None = None) -> AsyncIterator[None]:
    """The program at its work: it takes what comes."""
    values = [] if into is None else into

    async def read() -> None:
        async for batch in consumer.batches():
            values.extend(record.value for record in batch)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        yield
        nursery.cancel_scope.cancel()


async def create(kafka: fencepost.Client, name: str, partitions: int, records: int) -> None:
    async with kafka.admin() as admin:
        await admin.create_topics(name, partitions=partitions)
    async with kafka.producer() as producer, producer.batch() as batch:
        for n in range(records):
            await batch.send(name, b"%d" % n, partition=n % partitions)


async def until(condition: object, what: str) -> None:
    """Wait for something that the broker and the members bring about together."""
    for _ in range(2000):
        if condition():  # type: ignore[operator]
            return
        await trio.sleep(0.05)
    raise AssertionError(what)


async def committed(kafka: fencepost.Client, group: str, partition: TopicPartition) -> int | None:
    async with kafka.consumer(group=group) as asking:
        return (await asking.committed(partition))[partition]
