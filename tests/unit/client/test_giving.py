"""What a consumer gives out of what it fetched, and what it holds meanwhile (I2), beside scripted brokers."""

from typing import Any

import pytest
import trio

import fencepost
from fencepost import TopicPartition
from fencepost.client.consumer.read_errors import CorruptRecordsError, DeserializationError
from fencepost.protocol.record_batch import build_batch
from tests.kit.fetch_broker import ScriptedCluster
from tests.kit.waiting import soon
from tests.unit.client.reading_kit import T0, Start, read, values, wait_fetched


async def test_records_before_a_damaged_batch_are_given_and_a_seek_goes_on_behind_it(
    start: Start, cluster: ScriptedCluster
) -> None:
    broker = await start(cluster)
    cluster.write(0, values(0, 3))
    damaged = build_batch([(0, None, b"x" * 50, ())] * 2, base_offset=3)
    damaged[-5] ^= 0xFF
    cluster.append(0, damaged)
    cluster.write(0, values(5, 2))
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        for _ in range(2):
            with pytest.raises(CorruptRecordsError, match="offset 3: the CRC is wrong") as told:
                await read(consumer, 1)
            assert told.value.position == 3
        consumer.seek(T0, 5)
        assert await read(consumer, 2) == [(0, 5), (0, 6)]


async def test_lag_is_nothing_when_only_markers_follow(start: Start, cluster: ScriptedCluster) -> None:
    """Neither markers nor aborted records count once they were fetched (I2)."""
    broker = await start(cluster)
    cluster.write_in_transaction(0, values(0, 3), 7, commit=True)
    cluster.write_in_transaction(0, values(0, 5), 8, commit=False)
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        assert consumer.lag() == {T0: None}
        await wait_fetched(consumer, T0, 10)
        assert consumer.lag() == {T0: 3}
        await read(consumer, 2)
        assert consumer.lag() == {T0: 1}
        await read(consumer, 1)
        assert consumer.lag() == {T0: 0}
        assert await consumer.position(T0) == 10, "behind what is not seen"
        metrics = consumer.metrics()
        assert metrics.records_consumed_total == 3
        assert metrics.records_lag_max == 0
        names = metrics.prometheus()
        assert names["kafka_consumer_fetch_manager_records_consumed_total"] == 3
        assert names["kafka_consumer_coordinator_assigned_partitions"] == 1
        assert names["fencepost_queued_bytes"] == metrics.queued_bytes


async def test_the_budget_holds_over_all_partitions(start: Start, autojump_clock: trio.testing.MockClock) -> None:
    """What waits is never more than `queued_max_bytes` and one batch for each request under way."""
    cluster = ScriptedCluster(partitions=6)
    broker = await start(cluster)
    for number in range(cluster.partitions):
        for _ in range(40):
            cluster.write(number, [bytes(1000)] * 4)
    limit, batch = 30_000, 4_100 + 1_024
    options = {"queued_max_bytes": limit, "max_partition_fetch_bytes": 9_000}
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t", **options) as consumer:
        await soon(lambda: consumer.metrics().queued_bytes > 0)
        await trio.sleep(0.2)
        held = consumer.metrics().queued_bytes
        assert 0 < held <= limit + 2 * batch
        found = await read(consumer, 6 * 160)
        assert len(set(found)) == len(found) == 960
        for number in range(cluster.partitions):
            assert [offset for n, offset in found if n == number] == list(range(160))
        assert consumer.metrics().queued_bytes_max <= limit + 2 * batch
        assert consumer._fetcher.budget.held == 0


async def test_a_paused_partition_gives_way_when_room_is_short(start: Start) -> None:
    cluster = ScriptedCluster(partitions=2)
    broker = await start(cluster)
    for number in range(2):
        for _ in range(20):
            cluster.write(number, [bytes(1000)] * 4)
    options = {"queued_max_bytes": 20_000, "max_partition_fetch_bytes": 10_000}
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t", **options) as consumer:
        await wait_fetched(consumer, T0, 1)
        consumer.pause(T0)
        assert consumer.paused == {T0}
        assert await read(consumer, 80) == [(1, offset) for offset in range(80)]
        consumer.resume()
        assert await read(consumer, 80) == [(0, offset) for offset in range(80)]


async def test_a_busy_partition_does_not_starve_the_others(start: Start) -> None:
    cluster = ScriptedCluster(partitions=3)
    broker = await start(cluster)
    for _ in range(50):
        cluster.write(0, values(0, 100))
    cluster.write(1, values(0, 1))
    cluster.write(2, values(0, 1))
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        for number in range(3):
            await wait_fetched(consumer, TopicPartition("t", number), 1)
        seen = []
        async for batch in consumer.batches(100):
            seen.append({record.partition for record in batch})
            if {1, 2} <= set().union(*seen):
                break
        assert len(seen) <= 4
        ones: list[int] = []
        consumer.seek_to_beginning()
        async for record in consumer:
            ones.append(record.partition)
            if {1, 2} <= set(ones):
                break
        assert len(ones) <= 3 * 500 + 3


async def numbers(consumer: fencepost.Consumer[Any, Any], got: list[int]) -> None:
    with trio.fail_after(100):
        async for record in consumer:
            got.append(record.value)


async def test_a_record_that_can_not_be_deserialized_is_not_passed_over(start: Start, cluster: ScriptedCluster) -> None:
    broker = await start(cluster)
    cluster.write(0, [b"1", b"2", b"drei", b"4"])
    async with (
        fencepost.Client(broker.address) as kafka,
        kafka.consumer("t", value_deserializer=lambda data: int(data)) as consumer,
    ):
        got: list[int] = []
        for _ in range(2):
            with pytest.raises(DeserializationError, match="record 2") as told:
                await numbers(consumer, got)
        assert isinstance(told.value.__cause__, ValueError)
        consumer.seek(T0, told.value.position + 1)
        async for record in consumer:
            got.append(record.value)
            break
        assert got == [1, 2, 4]


async def test_raw_answers_have_markers_and_the_aborted_list(start: Start, cluster: ScriptedCluster) -> None:
    """For readers of whole transactions: batches as they are."""
    broker = await start(cluster)
    cluster.write_in_transaction(0, values(0, 3), 7, commit=True)
    cluster.write_in_transaction(0, values(0, 5), 8, commit=False)
    async with fencepost.Client(broker.address) as kafka, kafka.consumer() as consumer:
        consumer._reader.keep_all()
        consumer.assign([T0])
        with trio.fail_after(100):
            raw = await consumer._reader.next_raw()
        assert [(h.base_offset, h.is_control, h.producer_id) for _, h in raw.batches] == [
            (0, False, 7),
            (3, True, 7),
            (4, False, 8),
            (9, True, 8),
        ]
        assert raw.aborted == ((8, 4),)
        assert (raw.start_offset, raw.next_offset, raw.last_stable_offset) == (0, 10, 10)
        assert await consumer.position(T0) == 10
