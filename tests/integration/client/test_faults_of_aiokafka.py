"""aiokafka#920 and #1098 on a real log: offsets in a transaction count, and the consumer goes on behind them."""

import pytest
import trio

import fencepost
from fencepost import AbortableError, TopicPartition


async def test_aiokafka_920_the_next_turn_gets_the_next_message(address_of_both: str, name: str) -> None:
    """aiokafka#920: after a commit inside a transaction the same message came again.

    One message at a time; every second transaction is aborted first, and then the same message comes once more. What a
    successor in the group gets is what was not committed.
    """
    source, target = f"{name}-in", f"{name}-out"
    here = TopicPartition(source, 0)
    async with fencepost.Client(address_of_both) as kafka:
        async with kafka.admin() as admin:
            for topic in (source, target):
                await admin.create_topics(topic, partitions=1)
        async with kafka.producer() as producer, producer.batch() as batch:
            for n in range(6):
                await batch.send(source, b"%d" % n)
        seen = []
        async with kafka.transactional_producer(name) as producer:
            async with kafka.consumer(source, group=name) as consumer:
                with trio.fail_after(100):
                    async for record in consumer:
                        seen.append(record.value)
                        try:
                            async with producer.transaction() as txn:
                                await txn.send(target, record.value)
                                await txn.send_offsets(consumer)
                                if record.offset % 2 and seen.count(record.value) == 1:
                                    raise AbortableError("once")
                        except AbortableError:
                            continue
                        assert await consumer.committed(here) == {here: record.offset + 1}
                        if record.offset == 3:
                            break
            async with kafka.consumer(source, group=name) as consumer:
                with trio.fail_after(100):
                    assert (await anext(aiter(consumer))).value == b"4"
        async with kafka.consumer(target) as consumer:
            with trio.fail_after(100):
                written = [(await anext(aiter(consumer))).value for _ in range(4)]
    assert seen == [b"0", b"1", b"1", b"2", b"3", b"3"]
    assert written == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("turns", [25])
async def test_aiokafka_1098_one_by_one_with_the_same_producer(address_of_both: str, name: str, turns: int) -> None:
    """aiokafka#1098: offsets committed one by one, from two tasks at once, always by the same producer."""
    async with fencepost.Client(address_of_both) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics(name, partitions=2)
        async with kafka.producer() as producer, producer.batch() as batch:
            for n in range(turns):
                await batch.send(name, b"%d" % n, partition=n % 2)
        async with kafka.transactional_producer(name) as producer, kafka.consumer(name, group=name) as consumer:
            count = 0
            with trio.fail_after(100):
                async for record in consumer:
                    place = TopicPartition(record.topic, record.partition)
                    async with producer.transaction() as txn, trio.open_nursery() as nursery:
                        for _ in range(2):
                            nursery.start_soon(txn.send_offsets, consumer, {place: record.offset + 1})
                    count += 1
                    if count == turns:
                        break
            committed = await consumer.committed()
        assert sum(offset or 0 for offset in committed.values()) == turns
