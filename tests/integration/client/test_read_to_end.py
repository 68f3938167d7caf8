"""Reading up to the present end, against a real broker: transactions, groups, and the blocking client."""

from contextlib import suppress

import pytest
import trio

import fencepost
from fencepost import sync
from tests.integration.client.group_kit import create


async def values_to_end(consumer: "fencepost.Consumer[bytes, bytes]") -> list[bytes]:
    with trio.fail_after(60):
        return sorted([record.value async for batch in consumer.read_to_end() for record in batch])


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_an_open_transaction_is_not_waited_for(kafka: fencepost.Client, name: str, isolation: str) -> None:
    """read_committed ends at the last stable offset, read_uncommitted at the high watermark."""
    await create(kafka, name, partitions=1, records=0)
    async with kafka.producer() as plain, kafka.transactional_producer(name) as producer:
        with suppress(fencepost.AbortableError):
            async with producer.transaction() as txn:
                await txn.send(name, b"aborted")
                await producer.flush()
                raise fencepost.AbortableError("the transaction aborts")
        await plain.send(name, b"before")
        async with producer.transaction() as txn:
            await txn.send(name, b"open")
            await producer.flush()
            await plain.send(name, b"behind")
            async with kafka.consumer(name, isolation=isolation) as consumer:
                uncommitted = [b"aborted", b"before", b"behind", b"open"]
                assert await values_to_end(consumer) == ([b"before"] if isolation == "read_committed" else uncommitted)
    async with kafka.consumer(name) as consumer:
        assert await values_to_end(consumer) == [b"before", b"behind", b"open"]


async def test_a_member_of_a_group_reads_what_the_group_has_not(
    kafka: fencepost.Client, name: str, way: dict[str, object]
) -> None:
    await create(kafka, name, partitions=3, records=300)
    for expected in (300, 0):
        async with kafka.consumer(name, group=name, **way) as consumer:
            assert len(await values_to_end(consumer)) == expected
            await consumer.commit()
    async with kafka.producer() as producer:
        await producer.send(name, b"new")
    async with kafka.consumer(name, group=name, **way) as consumer:
        assert await values_to_end(consumer) == [b"new"]


async def test_what_an_aborted_transaction_had_in_hand_is_read_again(kafka: fencepost.Client, name: str) -> None:
    await create(kafka, name, partitions=1, records=5)
    given = []
    async with (
        kafka.consumer(name, group=name) as consumer,
        kafka.transactional_producer(name) as producer,
    ):
        with trio.fail_after(60):
            async for batch in consumer.read_to_end():
                given.append(len(batch))
                try:
                    async with producer.transaction() as txn:
                        await txn.send_offsets(consumer)
                        if len(given) == 1:
                            raise fencepost.AbortableError("once more")
                except fencepost.AbortableError:
                    continue
    assert given == [5, 5]


def test_the_blocking_client_ends_there_too(address: str, name: str) -> None:
    with sync.Client(address, timeout=60) as kafka:
        with kafka.admin() as admin:
            admin.create_topics(name, partitions=2)
        with kafka.producer() as producer:
            producer.send_many(name, ((b"%d" % n, b"%d" % n) for n in range(1000)))
        with kafka.consumer(name) as consumer, sync.fail_after(60):
            assert sum(len(batch) for batch in consumer.read_to_end()) == 1000
            assert list(consumer.read_to_end()) == []
