"""What a commit says after a seek, before any record was read, and where an aborted transaction goes back to then.

Java's consumer commits its positions (`SubscriptionState.allConsumed`), however they came about; so does this one.
"""

import pytest
import trio

import fencepost
from fencepost import AbortableError, KafkaError, RetriableError, TopicPartition
from fencepost.client.consumer.read_errors import DeserializationError
from fencepost.sync import Client as BlockingClient
from tests.integration.client.group_kit import PATIENCE_S, committed, create


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_place_that_was_sought_is_committed_before_anything_is_read(
    kafka: fencepost.Client, name: str, transactional: bool
) -> None:
    """Backwards as well: the group has 8, the program says 3."""
    await create(kafka, name, partitions=1, records=9)
    here = TopicPartition(name, 0)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(group=name) as consumer, kafka.transactional_producer(name) as producer:
            consumer.assign([here])
            for place in (8, 3):
                consumer.seek(here, place)
                if transactional:
                    async with producer.transaction() as txn:
                        await txn.send_offsets(consumer)
                else:
                    await consumer.commit()
                assert await consumer.committed(here) == {here: place}


async def test_a_seek_in_on_assigned_is_committed(kafka: fencepost.Client, name: str, way: dict[str, object]) -> None:
    await create(kafka, name, partitions=1, records=9)
    here = TopicPartition(name, 0)
    told = trio.Event()

    async def begin_at_four(consumer: fencepost.Consumer, partitions: frozenset[TopicPartition]) -> None:
        consumer.seek(here, 4)
        told.set()

    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, on_assigned=begin_at_four, **way) as consumer:
            await told.wait()
            await consumer.commit()
    assert await committed(kafka, name, here) == 4


async def test_a_commit_waits_until_the_end_that_was_sought_is_found(kafka: fencepost.Client, name: str) -> None:
    await create(kafka, name, partitions=2, records=10)
    one, two = TopicPartition(name, 0), TopicPartition(name, 1)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(group=name) as consumer:
            consumer.assign([one, two])
            consumer.seek_to_end()
            await consumer.commit()
            assert await consumer.committed(one, two) == {one: 5, two: 5}
            consumer.seek_to_beginning(two)
            await consumer.commit()
            assert await consumer.committed(one, two) == {one: 5, two: 0}


async def test_where_reading_began_is_committed_so_that_latest_skips_nothing_later(
    kafka: fencepost.Client, name: str
) -> None:
    """Records that come while nobody reads are read by the successor: its `latest` does not count."""
    await create(kafka, name, partitions=1, records=3)
    options = {"group": name, "auto_offset_reset": "latest"}
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, enable_auto_commit=True, **options) as consumer:
            while not consumer.assignment:  # noqa: ASYNC110 - nobody tells of it
                await trio.sleep(0.01)
            assert await consumer.position(TopicPartition(name, 0)) == 3
        async with kafka.producer() as producer:
            await producer.send(name, b"meanwhile")
        async with kafka.consumer(name, **options) as consumer:
            assert (await anext(aiter(consumer))).value == b"meanwhile"


async def whole_numbers(consumer: fencepost.Consumer, count: int) -> list[int]:
    """The next records; those that are no numbers are passed over by a seek."""
    found: list[int] = []
    while len(found) < count:
        try:
            async for record in consumer:
                found.append(record.value)
                if len(found) == count:
                    break
        except DeserializationError as unreadable:
            consumer.seek(unreadable.partition, unreadable.position + 1)
    return found


async def test_a_seek_past_a_record_neither_cuts_the_transactions_offsets_nor_what_its_abort_takes_back(
    kafka: fencepost.Client, name: str
) -> None:
    """Records 0 to 3 are given, 4 is passed over: the commit says 5, and an abort gives 0 to 3 once more."""
    here = TopicPartition(name, 0)
    async with kafka.admin() as admin:
        await admin.create_topics(name)
        await admin.create_topics(f"{name}-out")
    async with kafka.producer() as producer:
        await producer.send_many(name, [(None, value) for value in (b"0", b"1", b"2", b"3", b"four")])
    with trio.fail_after(PATIENCE_S):
        async with (
            kafka.consumer(group=name, value_deserializer=lambda data: int(data)) as consumer,
            kafka.transactional_producer(name) as producer,
        ):
            consumer.assign([here])
            for turn in range(2):
                try:
                    async with producer.transaction(consumer=consumer) as txn:
                        numbers = await whole_numbers(consumer, 4)
                        assert numbers == [0, 1, 2, 3]
                        await txn.send_many(f"{name}-out", [(None, b"%d" % number) for number in numbers])
                        consumer.seek(here, 5)
                        await txn.send_offsets(consumer)
                        if turn == 0:
                            raise AbortableError("once more")
                except AbortableError:
                    assert await consumer.position(here) == 0
            assert await consumer.committed(here) == {here: 5}
            assert await consumer.position(here) == 5


async def test_a_seek_after_an_abort_stands(kafka: fencepost.Client, name: str) -> None:
    """The program's latest word counts, while the batch of the aborted transaction is still in its hand."""
    await create(kafka, name, partitions=1, records=9)
    here = TopicPartition(name, 0)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name) as consumer, kafka.transactional_producer(name) as producer:
            batches = consumer.batches(max_records=2)
            await anext(batches)
            with pytest.raises(AbortableError):
                async with producer.transaction():
                    raise AbortableError("this batch will not do")
            consumer.seek(here, 2)
            assert await consumer.position(here) == 2
            assert [record.offset for record in await anext(batches)] == [2, 3]


@pytest.mark.parametrize("place", [1, 7])
async def test_auto_commit_takes_a_seek_for_the_programs_word(kafka: fencepost.Client, name: str, place: int) -> None:
    """What is in the program's hand is not committed; where it sought is, before or behind that."""
    await create(kafka, name, partitions=1, records=9)
    here = TopicPartition(name, 0)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, enable_auto_commit=True) as consumer:
            batches = consumer.batches(max_records=3)
            await anext(batches)
            await anext(batches)
            consumer.seek(here, place)
        assert await committed(kafka, name, here) == place


async def test_auto_commit_does_not_fall_behind_a_commit_by_hand(kafka: fencepost.Client, name: str) -> None:
    """The record in hand was committed by name: the close does not take that back, also after a seek backwards."""
    await create(kafka, name, partitions=1, records=9)
    here = TopicPartition(name, 0)
    with trio.fail_after(PATIENCE_S):
        for start in (5, 2):
            async with kafka.consumer(name, group=name, enable_auto_commit=True) as consumer:
                while not consumer.assignment:  # noqa: ASYNC110 - nobody tells of it
                    await trio.sleep(0.01)
                consumer.seek(here, start)
                records = aiter(consumer)
                await anext(records)
                await anext(records)
                await consumer.commit()
            assert await committed(kafka, name, here) == start + 2


async def test_an_unknown_outcome_with_nothing_committed_goes_back_to_the_start(
    kafka: fencepost.Client, name: str
) -> None:
    """Not to where `auto_offset_reset` says: with `latest` the records that were given would be passed over."""
    await create(kafka, name, partitions=1, records=3)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, auto_offset_reset="latest") as consumer:
            while not consumer.assignment:  # noqa: ASYNC110 - nobody tells of it
                await trio.sleep(0.01)
            assert await consumer.position(TopicPartition(name, 0)) == 3
            async with kafka.producer() as producer:
                await producer.send(name, b"given")
            records = aiter(consumer)
            assert (await anext(records)).value == b"given"
            consumer._progress.forget_positions()
            assert (await anext(records)).value == b"given"


async def test_who_waits_for_a_position_that_goes_is_told(kafka: fencepost.Client, name: str) -> None:
    await create(kafka, name, partitions=1, records=1)
    here = TopicPartition(name, 7)  # nobody has ever heard of it, so the search goes on
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(group=name) as consumer, trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(KafkaError, match="not assigned"):
                    await consumer.position(here)

            consumer.assign([here])
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked(0)
            consumer.assign([])


async def test_the_place_sought_between_whole_transactions_is_committed(kafka: fencepost.Client, name: str) -> None:
    await create(kafka, name, partitions=1, records=0)
    here = TopicPartition(name, 0)
    async with kafka.transactional_producer(name) as producer:
        for value in (b"a", b"b", b"c"):
            async with producer.transaction() as txn:
                await txn.send(name, value)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(group=name) as consumer:
            consumer.assign([here])
            units = consumer.transactions()
            assert [record.value for record in await anext(units)] == [b"a"]
            await consumer.commit()
            consumer.seek(here, 4)
            assert [record.value for record in await anext(units)] == [b"c"]
            await consumer.commit()
            assert await consumer.committed(here) == {here: 6}
            consumer.seek(here, 2)
            await consumer.commit()
            assert await consumer.committed(here) == {here: 2}
            assert [record.value for record in await anext(units)] == [b"b"]
            await consumer.commit()
            assert await consumer.committed(here) == {here: 4}


def test_the_blocking_consumer_commits_a_seek_too(address: str, name: str) -> None:
    here = TopicPartition(name, 0)
    with BlockingClient(address, timeout=PATIENCE_S) as kafka, kafka.admin() as admin, kafka.producer() as producer:
        admin.create_topics(name)
        producer.send_many(name, ((None, b"%d" % n) for n in range(9)))
        with kafka.consumer(group=name, enable_auto_commit=True) as consumer:
            consumer.assign([here])
            assert next(iter(consumer)).offset == 0
            consumer.seek(here, 7)
            consumer.commit()
            assert consumer.committed(here) == {here: 7}
            assert next(iter(consumer)).offset == 7
            consumer.commit()
            consumer.seek_to_beginning()
            consumer.commit()
            assert consumer.committed(here) == {here: 0}


async def test_a_place_that_can_not_be_found_is_not_left_out_in_silence(address: str, name: str) -> None:
    """A commit without it would have what was given read again; in a transaction that is a reason to abort.

    What nobody has sought holds nobody up.
    """
    here, ghost = TopicPartition(name, 0), TopicPartition(name, 7)
    async with (
        fencepost.Client(address, default_api_timeout=0.5) as kafka,
        kafka.consumer(group=name) as consumer,
        kafka.transactional_producer(name) as producer,
    ):
        await create(kafka, name, partitions=1, records=9)
        consumer.assign([here, ghost])
        consumer.seek(here, 3)
        with trio.fail_after(PATIENCE_S):
            await consumer.commit()
            assert await consumer.committed(here) == {here: 3}
            consumer.seek(here, 4)
            consumer.seek_to_end(ghost)
            with pytest.raises(RetriableError, match="finding the positions to commit"):
                await consumer.commit()
            with pytest.raises(AbortableError, match="finding the positions to commit"):
                async with producer.transaction(consumer=consumer) as txn:
                    await txn.send_offsets(consumer)
            assert txn.committed is False
            assert await consumer.committed(here) == {here: 3}
