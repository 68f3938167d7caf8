"""The client under asyncio: the same classes, with asyncio's cancellation and timeouts."""

import asyncio
import random
from typing import Any

import pytest

from fencepost import AbortableError, Client, Consumer, KafkaError, TopicPartition
from tests.integration.client.asyncio_kit import WAIT_S, committed_values, create, run
from tests.kit.broker_process import BrokerProcess

FEW_MS = 0.004


def test_all_classes(address: str, name: str) -> None:
    async def main() -> None:
        source, target = f"{name}-in", f"{name}-out"
        async with Client(address) as kafka:
            await create(kafka, source, target, partitions=2)
            async with kafka.admin() as admin:
                assert {source, target} <= set(await admin.list_topics())
                assert await admin.describe_group_lag(name) is not None
            async with kafka.producer() as producer:
                place = await producer.send(source, b"0", key=b"0")
                assert place.offset == 0
                deliveries = [await producer.submit(source, b"%d" % n) for n in range(1, 50)]
                assert [(await one.wait()).topic for one in deliveries] == [source] * 49
                await asyncio.gather(*(producer.send(source, b"%d" % n) for n in range(50, 100)))
                async with producer.batch() as batch:
                    for n in range(100, 300):
                        await batch.send(source, b"%d" % n)
                await producer.send_many(source, ((None, b"%d" % n) for n in range(300, 1000)))
            done = 0
            async with kafka.consumer(source, group=name) as consumer, kafka.transactional_producer(name) as sender:
                async for records in consumer.batches(max_records=100):
                    try:
                        async with sender.transaction() as txn:
                            for record in records:
                                await txn.send(target, record.value)
                            if done == 300:
                                done += 1
                                raise AbortableError("once more")
                            await txn.send_offsets(consumer)
                        done += len(records)
                    except AbortableError:
                        continue
                    if done == 1001:
                        break
                assert sum(offset or 0 for offset in (await consumer.committed()).values()) == 1000
            assert sorted(map(int, filter(None, await committed_values(kafka, target)))) == list(range(1000))
            async with kafka.consumer(target, isolation="read_uncommitted") as whole:
                units = 0
                async for unit in whole.transactions():
                    units += len(list(unit))
                    if units == 1000:
                        break

    run(main())


def test_a_read_that_is_cancelled_loses_nothing(address: str, name: str) -> None:
    async def read(consumer: Consumer, one_by_one: bool) -> list[bytes | None]:
        if one_by_one:
            async for record in consumer:
                return [record.value]
        async for batch in consumer.batches(7):
            return [record.value for record in batch]
        raise AssertionError

    async def main() -> None:
        got: list[bytes | None] = []
        cancelled, chance = 0, random.Random(1)
        async with Client(address) as kafka:
            await create(kafka, name, partitions=2)
            async with kafka.producer(compression="lz4") as producer:
                await producer.send_many(name, ((None, b"%d" % n) for n in range(2000)))
            async with kafka.consumer(name, group=name) as consumer:
                while len(got) < 2000:
                    task = asyncio.create_task(read(consumer, chance.random() < 0.5))
                    for _ in range(chance.randrange(6)):
                        await asyncio.sleep(0)
                    if chance.random() < 0.5:
                        task.cancel()
                    try:
                        got += await task
                    except asyncio.CancelledError:
                        cancelled += 1
        assert sorted(int(value or b"") for value in got) == list(range(2000))
        assert cancelled > 10

    run(main())


def test_a_transaction_that_is_cancelled_is_whole_or_gone(address_of_both: str, name: str) -> None:
    async def main() -> None:
        known: set[int] = set()
        chance, cancelled = random.Random(2), 0
        async with Client(address_of_both) as kafka:
            await create(kafka, name)
            async with kafka.transactional_producer(name) as producer:
                for number in range(150):
                    txn: Any = None

                    async def one(number: int = number) -> None:
                        nonlocal txn
                        async with producer.transaction() as txn:
                            await txn.send(name, b"%d" % number)
                            await txn.send(name, b"%d" % number)

                    task = asyncio.create_task(one())
                    asked = False
                    if number % 5:
                        await asyncio.sleep(chance.random() * FEW_MS)
                        asked = task.cancel()
                    again = asked and chance.random() < 0.5
                    if again:
                        await asyncio.sleep(0)
                        task.cancel()
                    try:
                        await task
                        assert not asked, "a cancellation is not swallowed"
                    except asyncio.CancelledError:
                        cancelled += 1
                    if txn is not None and txn.committed:
                        known.add(number)
                    elif not asked:
                        raise AssertionError("a block that ended well has committed")
            found = await committed_values(kafka, name)
        assert sorted(int(value or b"") for value in found) == sorted([*known, *known])
        assert cancelled > 10
        assert len(known) >= 30

    run(main())


def test_timeouts(address: str, name: str) -> None:
    async def main() -> None:
        async with Client(address) as kafka:
            await create(kafka, name)
            async with kafka.consumer(name, group=name) as consumer, kafka.producer() as producer:
                with pytest.raises(TimeoutError):  # noqa: PT012 - as a program has it
                    async with asyncio.timeout(0.2):
                        async for _ in consumer:
                            pass
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(consumer.batches()), 0.2)
                await producer.send(name, b"x")
                async with asyncio.timeout(WAIT_S):
                    assert (await anext(consumer.batches()))[0].value == b"x"

    run(main())


def test_errors_are_the_same_and_stand_alone(address: str, name: str) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - as a program has it
            async with Client(address) as kafka:
                await create(kafka, name)
                async with kafka.transactional_producer(name) as producer, producer.transaction() as txn:
                    await txn.send(name, b"never")
                    raise ZeroDivisionError
        async with Client(address) as kafka, kafka.admin() as admin:
            with pytest.raises(KafkaError) as wrong:
                await admin.create_topics(name)
            assert "already exists" in str(wrong.value)
            assert any(entry.name == "main" for entry in wrong.traceback)
            assert await committed_values(kafka, name) == []
        async with asyncio.TaskGroup() as tasks:
            opened = asyncio.Event()

            async def wait() -> None:
                async with Client(address) as kafka, kafka.consumer(name, group=name):
                    opened.set()
                    await asyncio.sleep(WAIT_S)

            task = tasks.create_task(wait())
            await opened.wait()
            task.cancel()
        assert task.cancelled()

    run(main())


def test_callbacks_are_awaited(address: str, name: str) -> None:
    given: list[frozenset[TopicPartition]] = []

    async def assigned(consumer: Any, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.sleep(0)
        given.append(partitions)

    async def main() -> None:
        async with Client(address) as kafka:
            await create(kafka, name)
            async with kafka.consumer(group=name) as consumer, kafka.producer() as producer:
                consumer.subscribe(name, on_assigned=assigned)
                await producer.send(name, b"x")
                await anext(consumer.batches())

    run(main())
    assert given == [frozenset({TopicPartition(name, 0)})]


def test_the_broker_is_killed_and_comes_back(tmp_path: Any, name: str) -> None:
    async def main(broker: BrokerProcess) -> None:
        async with Client(broker.address) as kafka:
            await create(kafka, name)
            async with kafka.producer() as producer, kafka.consumer(name, group=name) as consumer:
                got: list[int] = []

                async def read() -> None:
                    async for record in consumer:
                        got.append(int(record.value or b""))
                        if len(got) == 300:
                            return

                reader = asyncio.create_task(read())
                for turn in range(3):
                    async with producer.batch() as batch:
                        for n in range(100):
                            await batch.send(name, b"%d" % (turn * 100 + n))
                    if turn < 2:
                        await asyncio.to_thread(broker.kill)
                        await asyncio.to_thread(broker.start)
                await reader
                assert got == list(range(300))

    with BrokerProcess(tmp_path, data_dir=tmp_path / "data") as broker:
        run(main(broker))
