"""Transactions through a real broker, in both protocols: all or nothing, for records and for offsets."""

from collections.abc import Iterable

import pytest
import trio

import fencepost
from fencepost import AbortableError, ErrorCode, FencedError, KafkaError, TopicPartition
from fencepost.client.admin.types import TransactionDescription
from fencepost.client.serializers import Integer, String
from tests.integration.client.transaction_kit import create, read_all


async def fill(kafka: fencepost.Client, topic: str, values: Iterable[bytes]) -> None:
    async with kafka.producer() as producer, producer.batch() as batch:
        for value in values:
            await batch.send(topic, value)


async def test_the_protocol_is_the_finalized_one(
    address_of_both: str, name: str, request: pytest.FixtureRequest
) -> None:
    """T16: transaction.version 2 means TV2."""
    expected = "tv2" in request.node.callspec.id
    async with fencepost.Client(address_of_both) as kafka:
        await create(kafka, name)
        async with kafka.transactional_producer(name) as producer, producer.transaction() as txn:
            await txn.send(name, b"x")
            assert txn._state.tv2 is expected


async def test_records_of_a_transaction_pass_the_serializers(address_of_both: str, name: str) -> None:
    async with fencepost.Client(address_of_both) as kafka:
        await create(kafka, name)
        async with (
            kafka.transactional_producer(name, key_serializer=String(), value_serializer=Integer()) as producer,
            producer.transaction() as txn,
        ):
            await txn.send(name, 7, key="seven", partition=0)
            await txn.send(name, None, key="nothing", partition=0)
        async with kafka.consumer(name, key_deserializer=String(), value_deserializer=Integer()) as consumer:
            read = [(r.key, r.value) async for batch in consumer.read_to_end() for r in batch]
    assert read == [("seven", 7), ("nothing", None)]


async def test_committed_is_seen_aborted_is_not(address_of_both: str, name: str) -> None:
    async with fencepost.Client(address_of_both) as kafka:
        await create(kafka, name)
        async with kafka.transactional_producer(name) as producer:
            for n in range(6):
                try:
                    async with producer.transaction() as txn:
                        for part in (0, 1):
                            await txn.send(name, b"%d.%d" % (n, part), partition=part)
                        if n % 3 == 1:
                            await producer.flush()
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    pass
        committed = [b"%d.%d" % (n, part) for part in (0, 1) for n in (0, 2, 3, 5)]
        assert await read_all(kafka, name) == committed
        everything = await read_all(kafka, name, "read_uncommitted")
        assert sorted(everything) == sorted(b"%d.%d" % (n, part) for n in range(6) for part in (0, 1))


async def test_a_cancelled_transaction_is_aborted_and_holds_up_no_reader(address_of_both: str, name: str) -> None:
    async with fencepost.Client(address_of_both) as kafka:
        await create(kafka, name)
        async with kafka.transactional_producer(name) as producer:
            with trio.CancelScope() as scope:
                async with producer.transaction() as txn:
                    await txn.send(name, b"never", partition=0)
                    await producer.flush()
                    scope.cancel()
                    await trio.sleep_forever()
            assert scope.cancelled_caught
            async with producer.transaction() as txn:
                await txn.send(name, b"kept", partition=0)
        assert await read_all(kafka, name) == [b"kept"]


async def test_an_open_transaction_holds_readers_and_is_shown(address_of_both: str, name: str) -> None:
    """I1: the last stable offset stays in front of it; the admin client says who, since when, and where."""
    here = TopicPartition(name, 0)
    async with fencepost.Client(address_of_both) as kafka, kafka.admin() as admin:
        await create(kafka, name)
        async with kafka.transactional_producer(name) as producer, producer.transaction() as txn:
            await txn.send(name, b"open", partition=0)
            await producer.flush()
            await fill(kafka, name, [b"other"] * 3)
            assert (await admin.list_offsets([here]))[here].offset == 0
            shown = (await admin.describe_transactions(name))[name]
            assert (shown.state, shown.partitions, shown.blocks) == ("Ongoing", (here,), (here,))
            assert shown.started is not None
            assert name in await admin.describe_transactions(states="Ongoing")
            (state,) = [p for p in (await admin.describe_producers(here))[here] if p.producer_id == shown.producer_id]
            assert state.transaction_start_offset == 0
        after = await _settled(admin, name)
        assert (after.started, after.blocks) == (None, ())
        assert (await admin.list_offsets([here]))[here].offset > 0


async def _settled(admin: fencepost.Admin, transactional_id: str) -> TransactionDescription:
    """The transaction once its markers are written, which a broker may do after it has answered (T7)."""
    for _ in range(2000):
        found = (await admin.describe_transactions(transactional_id))[transactional_id]
        if not found.state.startswith("Prepare"):
            return found
        await trio.sleep(0.05)
    raise AssertionError(f"still {found.state}")


async def test_a_newer_producer_fences_the_older_one(address_of_both: str, name: str) -> None:
    """T2: and what the older one left open is aborted."""
    async with fencepost.Client(address_of_both) as kafka:
        await create(kafka, name)
        async with kafka.transactional_producer(name) as old:

            async def overtaken() -> None:
                async with old.transaction() as txn:
                    await txn.send(name, b"zombie", partition=0)
                    await old.flush()
                    async with kafka.transactional_producer(name) as new, new.transaction() as other:
                        await other.send(name, b"alive", partition=0)

            with pytest.raises(FencedError):
                await overtaken()
            with pytest.raises(FencedError):
                async with old.transaction():
                    pass
        assert await read_all(kafka, name) == [b"alive"]


async def test_consume_transform_produce_with_aborts_on_the_way(address_of_both: str, name: str) -> None:
    """Offsets and records commit together; after an abort the consumer reads the same records again by itself."""
    source, target = f"{name}-in", f"{name}-out"
    async with fencepost.Client(address_of_both) as kafka:
        await create(kafka, source, target)
        await fill(kafka, source, [b"%d" % n for n in range(200)])
        turns = done = 0
        async with kafka.consumer(source, group=name) as consumer, kafka.transactional_producer(name) as producer:
            with trio.fail_after(100):
                async for batch in consumer.batches(max_records=30):
                    turns += 1
                    try:
                        async with producer.transaction() as txn:
                            for record in batch:
                                await txn.send(target, b"<" + record.value + b">", key=record.value)
                            if turns in (1, 4):
                                raise AbortableError("before the offsets are sent")
                            await txn.send_offsets(consumer)
                            if turns in (2, 6):
                                raise AbortableError("after the offsets are sent")
                        done += len(batch)
                    except AbortableError:
                        continue
                    if done == 200:
                        break
            committed = await consumer.committed()
        assert sum(offset or 0 for offset in committed.values()) == 200
        written = await read_all(kafka, target)
        assert sorted(written) == sorted(b"<%d>" % n for n in range(200))


async def test_the_offsets_of_an_aborted_transaction_do_not_count(address_of_both: str, name: str) -> None:
    """T5: and a reader of the group gets the records again."""
    async with fencepost.Client(address_of_both) as kafka:
        await create(kafka, name, partitions=1)
        await fill(kafka, name, [b"a", b"b"])
        async with kafka.transactional_producer(name) as producer:
            async with kafka.consumer(name, group=name) as consumer:
                with trio.fail_after(100):
                    await anext(consumer.batches())
                with pytest.raises(ZeroDivisionError):
                    await _give_up_after_offsets(producer, consumer)
                assert await consumer.committed() == {TopicPartition(name, 0): None}
            async with kafka.consumer(name, group=name) as consumer:
                with trio.fail_after(100):
                    assert [r.value for r in await anext(consumer.batches())] == [b"a", b"b"]


async def _give_up_after_offsets(producer: fencepost.TransactionalProducer, consumer: fencepost.Consumer) -> None:
    async with producer.transaction() as txn:
        await txn.send_offsets(consumer)
        raise ZeroDivisionError


async def test_the_same_batch_may_be_tried_again_without_reading_it_again(address_of_both: str, name: str) -> None:
    """A retry inside the loop commits what is in hand, exactly once, and the next read goes on behind it."""
    source, target = f"{name}-in", f"{name}-out"
    async with fencepost.Client(address_of_both) as kafka:
        await create(kafka, source, target)
        await fill(kafka, source, [b"%d" % n for n in range(20)])
        async with kafka.consumer(source, group=name) as consumer, kafka.transactional_producer(name) as producer:
            done = failures = 0
            with trio.fail_after(100):
                async for batch in consumer.batches(max_records=4):
                    for attempt in range(2):
                        try:
                            async with producer.transaction() as txn:
                                await txn.send_many(target, [(None, r.value) for r in batch])
                                await txn.send_offsets(consumer)
                                if attempt == 0:
                                    raise AbortableError("try it again")
                        except AbortableError:
                            failures += 1
                    done += len(batch)
                    if done >= 20:
                        break
        assert failures >= 5
        assert sorted(await read_all(kafka, target)) == sorted(b"%d" % n for n in range(20))


async def test_a_zombie_member_can_not_commit_offsets(address_of_both: str, name: str) -> None:
    """KIP-447: the generation under which the records were read is checked, whoever sends it."""
    async with fencepost.Client(address_of_both) as kafka:
        await create(kafka, name, partitions=1)
        await fill(kafka, name, [b"a", b"b"])
        async with kafka.transactional_producer(name) as producer:
            async with kafka.consumer(name, group=name) as consumer:
                with trio.fail_after(100):
                    await anext(consumer.batches())
                zombie, offsets = consumer._committer.offsets_in_hand()
            async with kafka.consumer(name, group=name) as consumer:
                with trio.fail_after(100):
                    await anext(consumer.batches())
                with pytest.raises(AbortableError) as refused:
                    async with producer.transaction() as txn:
                        await txn.send_group_offsets(zombie, offsets)
                assert refused.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
                assert await consumer.position(TopicPartition(name, 0)) == 0, "the consumer in hand is rewound"
                async with producer.transaction() as txn:
                    await txn.send_offsets(consumer)
                assert await consumer.committed() == {TopicPartition(name, 0): 2}


async def test_many_transactions_in_a_row_on_one_partition(address_of_both: str, name: str) -> None:
    """Epochs, sequences and markers fit together over many turns."""
    async with fencepost.Client(address_of_both) as kafka:
        await create(kafka, name, partitions=1)
        async with kafka.transactional_producer(name) as producer:
            for n in range(60):
                async with producer.transaction() as txn:
                    await txn.send_many(name, [(None, b"%03d.%d" % (n, i)) for i in range(5)])
        assert await read_all(kafka, name) == [b"%03d.%d" % (n, i) for n in range(60) for i in range(5)]


async def test_a_transaction_that_stood_open_too_long_is_aborted(address: str, name: str) -> None:
    """T10: the coordinator ended it; the producer learns that nobody newer is there and goes on."""
    async with fencepost.Client(address) as kafka, kafka.admin() as admin:
        await create(kafka, name, partitions=1)
        async with kafka.transactional_producer(name, transaction_timeout=8) as producer:

            async def dawdle() -> None:
                async with producer.transaction() as txn:
                    await txn.send(name, b"late")
                    await producer.flush()
                    for _ in range(500):
                        await trio.sleep(0.2)
                        if (await admin.describe_transactions(name))[name].state != "Ongoing":
                            return

            with pytest.raises(AbortableError):
                await dawdle()
            async with producer.transaction() as txn:
                await txn.send(name, b"next")
        assert await read_all(kafka, name) == [b"next"]


async def test_a_timeout_over_the_brokers_maximum_is_refused(address: str, name: str) -> None:
    """T2: INVALID_TRANSACTION_TIMEOUT, at once and not after retries."""
    async with fencepost.Client(address) as kafka:
        with trio.fail_after(100), pytest.raises(KafkaError) as refused:
            await kafka.transactional_producer(name, transaction_timeout=10**5).__aenter__()
        assert refused.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
