"""Groups that rebalance while a transaction is open, or while a callback commits: nothing is lost, nothing twice."""

import pytest
import trio

import fencepost
from fencepost import AbortableError, KafkaError, TopicPartition
from tests.integration.client.group_kit import COOPERATIVE, PATIENCE_S, create, reading, until


@pytest.fixture(scope="module")
def address(address_of_quick_groups: str) -> str:
    """Groups change fast here."""
    return address_of_quick_groups


async def commit_as_expelled(
    producer: fencepost.TransactionalProducer, consumer: fencepost.Consumer, offsets: dict[TopicPartition, int] | None
) -> None:
    """As a heartbeat's answer says it, in the moment before that is acted on."""
    async with producer.transaction() as txn:
        membership = consumer._group.membership
        assert membership is not None
        membership._expel("the test says so")
        await txn.send_offsets(consumer, offsets)


@pytest.mark.parametrize("named", [False, True])
async def test_offsets_of_a_member_that_was_expelled_join_no_transaction(
    kafka: fencepost.Client, name: str, way: dict[str, object], named: bool
) -> None:
    """KIP-447: without a member's name the group would take them unchecked, also after it gave the partitions away."""
    await create(kafka, name, partitions=1, records=3)
    here = TopicPartition(name, 0)
    with trio.fail_after(PATIENCE_S):
        async with kafka.transactional_producer(name) as producer, kafka.consumer(name, group=name, **way) as consumer:
            await anext(consumer.batches())
            with pytest.raises(AbortableError):
                await commit_as_expelled(producer, consumer, {here: 3} if named else None)
            assert await consumer.committed(here) == {here: None}


async def test_a_transaction_does_not_commit_beside_partitions_that_went_with_its_records(
    kafka: fencepost.Client, name: str, way: dict[str, object]
) -> None:
    """It has gone on reading: the partitions' next owner reads the same records again, so this must not count."""
    await create(kafka, name, partitions=2, records=20)
    with trio.fail_after(PATIENCE_S):
        async with kafka.transactional_producer(name) as producer, kafka.consumer(name, group=name, **way) as one:
            batches = one.batches()
            values: list[bytes] = []

            async def spans() -> None:
                async with producer.transaction() as txn:
                    while len(values) < 20:
                        values.extend([record.value for record in await anext(batches)])
                    async with kafka.consumer(name, group=name, **way) as two, reading(two):
                        with trio.CancelScope() as waiting:

                            async def shared() -> None:
                                await until(lambda: len(two.assignment) == 1, "the second has its share")
                                waiting.cancel()

                            async with trio.open_nursery() as nursery:
                                nursery.start_soon(shared)
                                await anext(batches)
                        await until(lambda: len(one.assignment) == 1, "the first has its own")
                        with pytest.raises(AbortableError, match="revoked partitions"):
                            await txn.send_offsets(one)

            with pytest.raises(AbortableError, match="revoked partitions"):
                await spans()
            assert set((await one.committed(*(TopicPartition(name, n) for n in (0, 1)))).values()) == {None}


@pytest.mark.parametrize("protocol", [COOPERATIVE, {"group_protocol": "consumer"}], ids=["cooperative", "consumer"])
async def test_nothing_is_given_while_on_revoked_is_told(
    kafka: fencepost.Client, name: str, protocol: dict[str, object]
) -> None:
    """What it commits is what was asked past: records of partitions that stay are not in the program's hand then."""
    await create(kafka, name, partitions=2, records=20)
    way = {"group": name, "heartbeat_interval": 0.05, "session_timeout": 45, **protocol}
    values: list[bytes] = []
    seen: list[tuple[int, int]] = []

    async def commit(consumer: fencepost.Consumer, partitions: frozenset[TopicPartition]) -> None:
        before = len(values)
        async with kafka.producer() as producer:
            for number in range(2):
                await producer.send(name, b"more", partition=number)
        stays = next(iter(consumer.assignment - partitions))
        await until(lambda: consumer._fetcher.states[stays].fetch_offset > 10, "the record is here")
        await trio.sleep(0.1)
        await consumer.commit()
        found = await consumer.committed(stays)
        seen.append((len(values) - before, found[stays] or 0))

    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, on_revoked=commit, **way) as one, reading(one, values):
            await until(lambda: len(values) == 20, "everything is read")
            async with kafka.consumer(name, **way) as two, reading(two):
                await until(lambda: bool(seen), "the second has its share")
                await until(lambda: values.count(b"more") == 1, "it goes on afterwards")
                one._subscriber.callbacks["revoked"] = None
    assert seen[0] == (0, 10)


@pytest.mark.parametrize("how", ["refused", "unsubscribed"])
async def test_no_wait_for_partitions_that_a_membership_at_its_end_will_not_take_away(
    kafka: fencepost.Client, name: str, way: dict[str, object], how: str
) -> None:
    """The group has expelled the member, and in the same moment refuses it for good, or it is given up elsewhere."""
    await create(kafka, name, partitions=1, records=3)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, **way) as consumer:
            batches = consumer.batches()
            await anext(batches)
            membership = consumer._group.membership
            assert membership is not None
            membership._expel("the test says so")
            if how == "refused":
                membership._fail(KafkaError("the group is closed to this member"))
                membership._notify()
                with pytest.raises(KafkaError, match="closed to this member"):
                    await anext(batches)
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(anext, batches)  # which gives the batch back, and waits for what the group takes
                consumer._subscriber.end_tasks()
                await consumer.unsubscribe()
                consumer.assign([TopicPartition(name, 0)])
