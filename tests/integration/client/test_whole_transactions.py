"""`consumer.transactions()` on a real broker's logs: concurrent producers, crashes of the reader, bounded memory."""

import itertools
from collections import defaultdict
from random import Random

import pytest
import trio

import fencepost
from fencepost import AbortableError, TopicPartition
from fencepost.client.consumer.unit_reader import TransactionTooLargeError

PARTITIONS = 3


async def create(kafka: fencepost.Client, *names: str, partitions: int = PARTITIONS) -> None:
    async with kafka.admin() as admin:
        for name in names:
            await admin.create_topics(name, partitions=partitions, if_not_exists=True)


async def write(kafka: fencepost.Client, topic: str, who: str, count: int, seed: int) -> dict[bytes, set[bytes]]:
    """Transactions of some records to some partitions; by name those that committed, with their records."""
    chance = Random(seed)
    written: dict[bytes, set[bytes]] = {}
    async with kafka.transactional_producer(f"{topic}-{who}") as producer:
        for n in range(count):
            name = f"{who}.{n}".encode()
            values = {b"%s.%d" % (name, i) for i in range(chance.randrange(1, 6))}
            try:
                async with producer.transaction() as txn:
                    for value in sorted(values):
                        await txn.send(topic, value, partition=chance.randrange(PARTITIONS))
                        if chance.random() < 0.3:
                            await producer.flush()
                    if chance.random() < 0.2:
                        raise AbortableError("on purpose")
            except AbortableError:
                continue
            written[name] = values
            await trio.sleep(chance.random() * 0.01)
    return written


def name_of(value: bytes) -> bytes:
    return value.rsplit(b".", 1)[0]


async def take(
    kafka: fencepost.Client, topic: str, wanted: int, *, group: str | None = None, isolation: str = "read_committed"
) -> list[set[bytes]]:
    """Units until `wanted` records came."""
    options = {"group": group} if group is not None else {}
    units: list[set[bytes]] = []
    async with kafka.consumer(topic, isolation=isolation, **options) as consumer:
        with trio.fail_after(100):
            async for unit in consumer.transactions():
                units.append({record.value for record in unit})
                if sum(map(len, units)) >= wanted:
                    return units
    raise AssertionError


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_every_committed_transaction_is_one_unit(
    address_of_both: str, name: str, isolation: str, request: pytest.FixtureRequest
) -> None:
    """Random interleavings of producers and partitions, read while they are written: TV2 alone, TV1 never a part."""
    exact = "tv2" in request.node.callspec.id
    written: dict[bytes, set[bytes]] = {}
    async with fencepost.Client(address_of_both) as kafka:
        await create(kafka, name)
        units: list[set[bytes]] = []

        async def produce(who: int) -> None:
            written.update(await write(kafka, name, f"p{who}", 15, who))

        async with trio.open_nursery() as nursery:
            for who in range(3):
                nursery.start_soon(produce, who)
        async with kafka.producer() as producer:
            await producer.send(name, b"alone.0", partition=1)
        written[b"alone"] = {b"alone.0"}
        units = await take(kafka, name, sum(map(len, written.values())), isolation=isolation)
    seen: dict[bytes, int] = defaultdict(int)
    for unit in units:
        names = {name_of(value) for value in unit}
        assert unit == set().union(*(written[one] for one in names)), "whole ones, and nothing aborted"
        assert len(names) == 1 or not exact
        for one in names:
            seen[one] += 1
    assert seen == dict.fromkeys(written, 1)


async def test_it_gives_them_while_they_are_written(address: str, name: str) -> None:
    """Live, with transactions that stay open between: an open one holds up nobody with read_uncommitted."""
    async with fencepost.Client(address) as kafka:
        await create(kafka, name)
        async with (
            kafka.transactional_producer(f"{name}-slow") as slow,
            kafka.consumer(name, isolation="read_uncommitted") as consumer,
            slow.transaction() as open_one,
        ):
            for partition in range(PARTITIONS):
                await open_one.send(name, b"slow.%d" % partition, partition=partition)
            await slow.flush()
            written = await write(kafka, name, "quick", 10, 1)
            units = consumer.transactions()
            with trio.fail_after(100):
                for _ in written:
                    unit = await anext(units)
                    values = {record.value for record in unit}
                    assert values == written[name_of(min(values))]
                    assert unit.transactional
                    assert unit.merged == 1
            with trio.move_on_after(0.3) as scope:
                await anext(units)
            assert scope.cancelled_caught, "the slow one is not complete"
            assert units.held_bytes > 0


async def test_going_on_from_what_was_committed_cuts_and_doubles_none(address: str, name: str) -> None:
    """Consumers that die after any unit; overlapping transactions are named in the note beside the offset."""
    source, target = f"{name}-in", f"{name}-out"
    async with fencepost.Client(address) as kafka:
        await create(kafka, source, target)
        written: dict[bytes, set[bytes]] = {}

        async def produce(who: int) -> None:
            written.update(await write(kafka, source, f"p{who}", 12, 10 + who))

        async with trio.open_nursery() as nursery:
            for who in range(3):
                nursery.start_soon(produce, who)
        wanted, done = sum(map(len, written.values())), 0
        turns = itertools.count()
        while done < wanted:
            async with (
                kafka.consumer(source, group=name, isolation="read_uncommitted") as consumer,
                kafka.transactional_producer(name) as producer,
            ):
                with trio.fail_after(100):
                    async for unit in consumer.transactions():
                        turn = next(turns)
                        try:
                            async with producer.transaction() as txn:
                                values = [record.value for record in unit]
                                for value in values:
                                    await txn.send(target, b"%d|" % turn + value, partition=0)
                                await txn.send_offsets(consumer)
                                if turn % 7 == 3:
                                    raise AbortableError("it comes again")
                        except AbortableError:
                            continue
                        done += len(values)
                        if done >= wanted or turn % 5 == 4:
                            break
        copied: dict[bytes, set[bytes]] = defaultdict(set)
        for unit_values in await take(kafka, target, wanted):
            for value in unit_values:
                turn_text, _, original = value.partition(b"|")
                assert original not in copied[turn_text]
                copied[turn_text].add(original)
    assert sorted(map(sorted, copied.values())) == sorted(map(sorted, written.values()))


async def test_too_much_undecided_is_an_error_that_names_it_or_is_spilled(address: str, name: str) -> None:
    async with fencepost.Client(address) as kafka:
        await create(kafka, name)
        async with kafka.transactional_producer(name) as producer, producer.transaction() as txn:
            assert producer._manager.current is not None
            number = producer._manager.current[0]
            for n in range(200):
                await txn.send(name, b"%03d" % n + b"x" * 2000, partition=n % PARTITIONS)
        async with kafka.consumer(name) as consumer:
            with trio.fail_after(100), pytest.raises(TransactionTooLargeError, match=f"producer {number} epoch"):
                await anext(consumer.transactions(max_bytes=50_000))
        async with kafka.consumer(name) as consumer:
            units = consumer.transactions(max_bytes=50_000, overflow="spill")
            with trio.fail_after(100):
                unit = await anext(units)
            assert sorted(record.value[:3] for record in unit) == [b"%03d" % n for n in range(200)]
            assert {record.partition for record in unit} == {p.partition for p in unit.partitions} == {0, 1, 2}
            assert units.spilled_bytes > 300_000


async def test_beginning_in_the_middle_leaves_out_what_is_cut(address: str, name: str) -> None:
    """Its first batch that can be seen is not the first of its epoch, so it is not given as if it were whole."""
    here = TopicPartition(name, 0)
    async with fencepost.Client(address) as kafka:
        await create(kafka, name, partitions=1)
        async with kafka.transactional_producer(name) as producer:
            for values in ((b"a1", b"a2", b"a3"), (b"b1", b"b2")):
                async with producer.transaction() as txn:
                    for value in values:
                        await txn.send(name, value, partition=0)
                        await producer.flush()
        async with kafka.consumer() as consumer:
            consumer.assign([here])
            consumer.seek(here, 1)
            units = consumer.transactions()
            with trio.fail_after(100):
                assert [record.value for record in await anext(units)] == [b"b1", b"b2"]
            assert units.left_out == 1
