"""Consumer groups through a real broker: joining, rebalancing between batches, committing, leaving (rows G1, G2)."""

import pytest
import trio

import fencepost
from fencepost import ErrorCode, FencedError, KafkaError, TopicPartition
from tests.integration.client.group_kit import create, until


class Reader:
    """A member that reads, commits after every batch, and can be told to stop."""

    def __init__(self, client: fencepost.Client, topic: str, **options: object) -> None:
        options = {"group": topic, "heartbeat_interval": 0.05, "session_timeout": 45, **options}
        self.consumer = client.consumer(topic, **options)
        self.values: list[bytes] = []
        self.stop = trio.CancelScope()

    async def run(self) -> None:
        async with self.consumer:
            with self.stop:
                async for batch in self.consumer.batches(max_records=20):
                    self.values += [record.value for record in batch]
                    try:
                        await self.consumer.commit()
                    except KafkaError as error:
                        if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                            raise


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
async def test_two_members_share_and_one_takes_over(kafka: fencepost.Client, name: str, strategy: str) -> None:
    """A second member gets half of the partitions; when one leaves the other has all again, and nothing is lost."""
    await create(kafka, name, partitions=4, records=400)
    async with trio.open_nursery() as nursery:
        first = Reader(kafka, name, partition_assignment_strategy=strategy)
        second = Reader(kafka, name, partition_assignment_strategy=strategy)
        nursery.start_soon(first.run)
        await until(lambda: len(first.consumer.assignment) == 4, "the first member has all partitions")
        nursery.start_soon(second.run)
        await until(
            lambda: len(first.consumer.assignment) == 2 and len(second.consumer.assignment) == 2, "both have two"
        )
        assert first.consumer.assignment.isdisjoint(second.consumer.assignment)
        async with kafka.admin() as admin:
            group = (await admin.describe_groups(name))[name]
            assert (group.state, group.protocol, len(group.members)) == ("Stable", strategy, 2)
            assert {p for member in group.members for p in member.partitions} == {
                TopicPartition(name, n) for n in range(4)
            }
        async with kafka.producer() as producer, producer.batch() as batch:
            for n in range(400, 500):
                await batch.send(name, b"%d" % n, partition=n % 4)
        await until(lambda: len({*first.values, *second.values}) == 500, "everything is read")
        assert second.values, "both members read"
        second.stop.cancel()
        await until(lambda: len(first.consumer.assignment) == 4, "the first member has all partitions again")
        first.stop.cancel()


async def test_a_rebalance_waits_for_the_batch_in_hand(kafka: fencepost.Client, name: str) -> None:
    """The member keeps its partitions until the program asks for the next batch, so its commit still counts."""
    await create(kafka, name, partitions=2, records=10)
    options = {"group": name, "heartbeat_interval": 0.05}
    async with kafka.consumer(name, **options) as consumer, trio.open_nursery() as nursery:
        batches = consumer.batches(max_records=4)
        with trio.fail_after(100):
            await anext(batches)
        second = Reader(kafka, name)
        nursery.start_soon(second.run)
        await trio.sleep(0.5)
        assert len(consumer.assignment) == 2
        async with kafka.transactional_producer(name) as producer, producer.transaction() as txn:
            await txn.send_offsets(consumer)

        async def read_on() -> None:
            async for _ in batches:
                await consumer.commit()

        nursery.start_soon(read_on)
        await until(lambda: len(second.consumer.assignment) == 1, "the second member joins")
        nursery.cancel_scope.cancel()


async def test_a_group_goes_on_where_it_committed(kafka: fencepost.Client, name: str) -> None:
    await create(kafka, name, partitions=1, records=10)
    here = TopicPartition(name, 0)
    with trio.fail_after(100):
        async with kafka.consumer(name, group=name) as consumer:
            assert [r.offset for r in await anext(consumer.batches(max_records=4))] == [0, 1, 2, 3]
            await consumer.commit()
            await anext(consumer.batches(max_records=2))
        async with kafka.consumer(name, group=name) as consumer:
            assert (await anext(aiter(consumer))).offset == 4
            await consumer.commit({here: 8})
            assert await consumer.committed() == {here: 8}
        async with kafka.consumer(name, group=name) as consumer:
            assert (await anext(aiter(consumer))).offset == 8
        async with kafka.admin() as admin:
            await admin.alter_group_offsets(name, {here: 1})
            assert (await admin.list_group_offsets(name))[here].offset == 1
            await admin.delete_groups(name)
            assert await admin.list_group_offsets(name) == {}


async def test_auto_commit_covers_what_the_program_is_done_with(kafka: fencepost.Client, name: str) -> None:
    """A batch is done when the next one is asked for; the close commits no batch that is still in hand."""
    await create(kafka, name, partitions=1, records=9)
    options = {"group": name, "enable_auto_commit": True, "auto_commit_interval": 0.001}
    with trio.fail_after(100):
        async with kafka.consumer(name, **options) as consumer:
            batches = consumer.batches(max_records=3)
            await anext(batches)
            await trio.sleep(0.01)
            await anext(batches)
            assert await consumer.committed() == {TopicPartition(name, 0): 3}
        async with kafka.consumer(name, **options) as consumer:
            assert (await anext(aiter(consumer))).offset == 3, "the second batch was in hand when the consumer closed"


async def test_a_static_member_is_fenced_by_its_successor(kafka: fencepost.Client, name: str) -> None:
    """KIP-345: the same instance id joins again and takes the partitions at once; the older one is told."""
    await create(kafka, name, partitions=2, records=4)
    options = {"group": name, "group_instance_id": "one", "heartbeat_interval": 0.05}
    with trio.fail_after(100):
        async with kafka.consumer(name, **options) as old:
            await anext(old.batches())
            async with kafka.consumer(name, **options) as new:
                await anext(new.batches())
                with pytest.raises(FencedError):
                    await _read_for_ever(old)


async def _read_for_ever(consumer: fencepost.Consumer) -> None:
    async for _ in consumer.batches():
        pass


async def test_new_partitions_are_found_by_the_group(address: str, name: str) -> None:
    """The leader looks at its topics from time to time and asks for a rebalance when they have grown."""
    async with fencepost.Client(address, metadata_max_age=0.1) as kafka:
        await create(kafka, name, partitions=1, records=1)
        async with trio.open_nursery() as nursery:
            reader = Reader(kafka, name)
            nursery.start_soon(reader.run)
            await until(lambda: len(reader.consumer.assignment) == 1, "one partition")
            async with fencepost.Client(address) as other, other.admin() as admin:
                await admin.create_partitions(name, 3)
            await until(lambda: len(reader.consumer.assignment) == 3, "three partitions")
            reader.stop.cancel()


async def test_a_group_that_refuses_the_member_says_so_at_the_next_call(kafka: fencepost.Client, name: str) -> None:
    """Failures of background tasks reach the program: a session timeout that the broker does not allow."""
    await create(kafka, name, partitions=1, records=1)
    with trio.fail_after(100):
        async with kafka.consumer(name, group=name, session_timeout=0.001) as consumer:
            with pytest.raises(KafkaError) as refused:
                await anext(consumer.batches())
    assert refused.value.code is ErrorCode.INVALID_SESSION_TIMEOUT
