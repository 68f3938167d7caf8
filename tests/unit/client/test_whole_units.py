"""`consumer.transactions()` against a scripted broker: cancelled reads, partitions that go, commits before reading."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import trio

import fencepost
from fencepost import TopicPartition
from fencepost.client.consumer.unit_reader import TransactionTooLargeError
from fencepost.client.consumer.whole_transaction import WholeTransaction
from fencepost.client.consumer.whole_transactions import WholeTransactions
from fencepost.protocol.control_records import end_txn_marker
from tests.kit.fetch_broker import ScriptedCluster
from tests.unit.client.reading_kit import T0, Start

Units = WholeTransactions[bytes, bytes]


def client(broker: Any) -> fencepost.Client:
    return fencepost.Client(broker.address, random=random.Random(1), retry_backoff=0.001)


async def following(units: Units) -> WholeTransaction[bytes, bytes]:
    with trio.fail_after(100):
        return await anext(units)


def values(unit: WholeTransaction[bytes, bytes]) -> list[bytes]:
    return [record.value for record in unit]


async def nothing_comes(units: Units) -> None:
    """A read that was cancelled before it began."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await anext(units)
    assert scope.cancelled_caught


def write(cluster: ScriptedCluster, *contents: Sequence[bytes]) -> None:
    for number, content in enumerate(contents):
        cluster.write_in_transaction(0, content, producer_id=number + 1, commit=True)


async def test_a_cancelled_read_loses_no_unit(cluster: ScriptedCluster, start: Start) -> None:
    """Also one that was complete and about to be given."""
    broker = await start(cluster)
    write(cluster, [b"a"], [b"b"], [b"c"])
    async with client(broker) as kafka, kafka.consumer() as consumer:
        consumer.assign([T0])
        units = consumer.transactions()
        assert values(await following(units)) == [b"a"]
        for _ in range(3):
            await nothing_comes(units)
        assert values(await following(units)) == [b"b"]
        await nothing_comes(units)
        assert values(await following(units)) == [b"c"]


async def test_a_unit_can_be_read_after_its_commit(cluster: ScriptedCluster, start: Start) -> None:
    """Committing first and working afterwards is a program's right; and so is going through a unit twice."""
    broker = await start(cluster)
    write(cluster, [b"a", b"b"])
    async with client(broker) as kafka, kafka.consumer() as consumer:
        consumer.assign([T0])
        units = consumer.transactions()
        unit = await following(units)
        units._reader.offsets()
        units._reader.committed()
        assert values(unit) == [b"a", b"b"]
        assert values(unit) == [b"a", b"b"]


async def test_units_that_are_complete_make_room_before_it_is_called_too_large(
    cluster: ScriptedCluster, start: Start
) -> None:
    """One answer may bring more than `max_bytes`: what is complete is given, and nothing is taken in twice."""
    broker = await start(cluster)
    contents = [[b"%d" % number * 300] for number in range(8)]
    write(cluster, *contents)
    async with client(broker) as kafka, kafka.consumer() as consumer:
        consumer.assign([T0])
        units = consumer.transactions(max_bytes=1000)
        assert [values(await following(units)) for _ in contents] == contents


async def test_what_was_too_large_is_not_taken_in_twice(cluster: ScriptedCluster, start: Start) -> None:
    """A program that asks again after TransactionTooLargeError hears the same, and holds no more than before."""
    broker = await start(cluster)
    for value in (b"a" * 300, b"b" * 300, b"c" * 900):
        cluster.write(0, [value], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    async with client(broker) as kafka, kafka.consumer(isolation="read_uncommitted") as consumer:
        consumer.assign([T0])
        units = consumer.transactions(max_bytes=1200)
        held = set()
        for _ in range(3):
            with pytest.raises(TransactionTooLargeError):
                await following(units)
            held.add(units.held_bytes)
        assert len(held) == 1
        assert 600 < held.pop() < 1200


async def test_dropping_what_was_fetched_ahead_loses_no_unit(cluster: ScriptedCluster, start: Start) -> None:
    """A paused partition gives its room to others: what was seen of its open transactions stays."""
    cluster.partitions = 2
    broker = await start(cluster)
    cluster.write(0, [b"a"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    write_end = cluster.logs[0].end
    assert write_end == 1
    other = TopicPartition("t", 1)
    async with client(broker) as kafka, kafka.consumer(isolation="read_uncommitted") as consumer:
        consumer.assign([T0, other])
        units = consumer.transactions()
        with trio.fail_after(100):
            while not units.held_bytes:
                with trio.move_on_after(0.05):
                    await anext(units)
        consumer.pause(T0)
        consumer._fetcher.states[T0].drop_buffered()
        consumer.resume(T0)
        cluster.append(0, end_txn_marker(1, 0, True, 0, 0, base_offset=1))
        assert values(await following(units)) == [b"a"]
        assert units.left_out == 0


async def test_an_abort_after_an_unknown_outcome_goes_where_the_group_says(
    cluster: ScriptedCluster, start: Start
) -> None:
    """Nobody knows what is committed, so there is no place to go back to: the group, or the program, tells."""
    broker = await start(cluster)
    write(cluster, [b"a"])
    async with client(broker) as kafka, kafka.consumer() as consumer:
        consumer.assign([T0])
        units = consumer.transactions()
        assert values(await following(units)) == [b"a"]
        consumer._progress.forget_positions()
        consumer._progress.rewind()
        assert values(await following(units)) == [b"a"]
