"""`read_to_end`: everything below the ends that partitions have when it begins, nothing beyond, and then it ends."""

from typing import Any

import pytest
import trio

import fencepost
from tests.kit.fetch_broker import ScriptedCluster
from tests.kit.waiting import soon
from tests.unit.client.reading_kit import T0, T1, Start, read, values, wait_fetched


async def offsets_to_end(consumer: fencepost.Consumer[Any, Any], max_records: int = 500) -> list[tuple[int, int]]:
    with trio.fail_after(30):
        return sorted(
            [(record.partition, record.offset) async for batch in consumer.read_to_end(max_records) for record in batch]
        )


async def test_it_ends_where_the_partitions_ended(start: Start, cluster: ScriptedCluster) -> None:
    """Also in the middle of a batch: what was written meanwhile is left to the next read."""
    broker = await start(cluster)
    cluster.partitions = broker.partitions = 2
    cluster.write(0, values(0, 5))
    cluster.write(1, values(0, 3))
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        batches = consumer.read_to_end(2)
        got = [(record.partition, record.offset) for record in await anext(batches)]
        cluster.write(0, values(5, 100))
        cluster.write(1, values(3, 100))
        consumer._fetcher.ends = None  # as for a request that is on its way when the ends are looked up
        consumer._fetcher.wake()
        await wait_fetched(consumer, T0, 105)
        await wait_fetched(consumer, T1, 103)
        with trio.fail_after(30):
            got += [(record.partition, record.offset) async for batch in batches for record in batch]
        assert sorted(got) == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1), (1, 2)]
        assert [await consumer.position(one) for one in (T0, T1)] == [5, 3]
        assert len(await offsets_to_end(consumer)) == 200
        assert await offsets_to_end(consumer) == []


async def test_an_end_in_the_middle_of_a_batch(start: Start, cluster: ScriptedCluster) -> None:
    """Compaction may have left records around it; those beyond come with the next read."""
    broker = await start(cluster)
    cluster.write(0, values(0, 10))
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        batches = consumer.read_to_end(500)
        batches._ends = {T0: 4}  # type: ignore[attr-defined]
        with trio.fail_after(30):
            assert [len(batch) async for batch in batches] == [4]
        assert await consumer.position(T0) == 4
        assert await read(consumer, 6) == [(0, offset) for offset in range(4, 10)]


async def test_markers_and_aborted_records_at_the_end_are_no_hindrance(start: Start, cluster: ScriptedCluster) -> None:
    broker = await start(cluster)
    cluster.write_in_transaction(0, values(0, 3), 7, commit=True)
    cluster.write_in_transaction(0, values(3, 3), 7, commit=False)
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        assert await offsets_to_end(consumer) == [(0, 0), (0, 1), (0, 2)]
        assert await consumer.position(T0) == cluster.logs[0].end


async def test_an_empty_partition_and_a_paused_one_end_at_once(start: Start, cluster: ScriptedCluster) -> None:
    broker = await start(cluster)
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        assert await offsets_to_end(consumer) == []
        cluster.write(0, values(0, 3))
        consumer.pause()
        assert await offsets_to_end(consumer) == []
        consumer.resume()
        assert len(await offsets_to_end(consumer)) == 3
    async with fencepost.Client(broker.address) as kafka, kafka.consumer() as consumer:
        assert await offsets_to_end(consumer) == []


async def test_a_cancelled_wait_loses_nothing(start: Start, cluster: ScriptedCluster) -> None:
    broker = await start(cluster)
    cluster.write(0, values(0, 3))
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        batches = consumer.read_to_end()
        with trio.CancelScope() as scope:
            scope.cancel()
            await anext(batches)
        with trio.fail_after(30):
            assert [len(batch) async for batch in batches] == [3]


async def test_what_was_fetched_beyond_the_ends_makes_room(start: Start, cluster: ScriptedCluster) -> None:
    broker = await start(cluster)
    cluster.partitions = broker.partitions = 2
    cluster.write(0, [b"first"])
    for _ in range(20):
        cluster.write(1, [bytes(1000)] * 10)
    options = {"queued_max_bytes": 64 << 10, "max_partition_fetch_bytes": 32 << 10}
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t", **options) as consumer:
        batches = consumer.read_to_end(10)
        got = []
        while await consumer.position(T0) == 0:
            got += list(await anext(batches))
        consumer._fetcher.ends = None  # as for a request that is on its way when the ends are looked up
        states = consumer._fetcher.states
        consumer.pause(T1)
        states[T1].drop_buffered()
        for _ in range(20):
            cluster.write(0, [bytes(1000)] * 10)
        await soon(lambda: states[T0].buffered_bytes >= 32 << 10)
        consumer.resume(T1)
        with trio.fail_after(30):
            got += [record async for batch in batches for record in batch]
        assert len(got) == 201


async def test_another_clients_names_for_it_lead_there() -> None:
    async with fencepost.Client("127.0.0.1:1") as kafka:
        for name in ("enable_partition_eof", "consumer_timeout_ms"):
            with pytest.raises(fencepost.ConfigError, match=r"Consumer\.read_to_end ends where the partitions end"):
                kafka.consumer("t", **{name: True})
