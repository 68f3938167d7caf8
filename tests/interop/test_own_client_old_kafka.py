"""Our client asks nothing that Apache Kafka 2.1 would not understand, and all of it works in those versions."""

from collections.abc import AsyncIterator

import pytest
import trio

import fencepost
from fencepost import AbortableError, ErrorCode, TopicPartition
from fencepost.protocol.registry import API_BY_KEY
from tests.kit.old_kafka import KAFKA_2_1, OldKafka
from tests.kit.stores import alone

pytestmark = alone("the old broker stands before one")
SECONDS = 100
SINCE_2_1 = {
    "AlterClientQuotas",
    "AlterPartitionReassignments",
    "AlterShareGroupOffsets",
    "AlterUserScramCredentials",
    "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat",
    "DeleteShareGroupOffsets",
    "DeleteShareGroupState",
    "DescribeClientQuotas",
    "DescribeCluster",
    "DescribeProducers",
    "DescribeQuorum",
    "DescribeShareGroupOffsets",
    "DescribeTopicPartitions",
    "DescribeTransactions",
    "DescribeUserScramCredentials",
    "ElectLeaders",
    "Envelope",
    "IncrementalAlterConfigs",
    "InitializeShareGroupState",
    "ListConfigResources",
    "ListPartitionReassignments",
    "ListTransactions",
    "OffsetDelete",
    "ReadShareGroupState",
    "ReadShareGroupStateSummary",
    "ShareAcknowledge",
    "ShareFetch",
    "ShareGroupDescribe",
    "ShareGroupHeartbeat",
    "TxnShareAcknowledge",
    "UnregisterBroker",
    "UpdateFeatures",
    "WriteShareGroupState",
}
"""APIs that came later: whoever calls for them is told so, or they are a better way to what an older one does."""


@pytest.fixture
async def old(each_bootstrap: str, nursery: trio.Nursery) -> AsyncIterator[OldKafka]:
    """A broker that looks like Kafka 2.1; afterwards: nothing was asked that it does not know."""
    proxy = OldKafka(each_bootstrap)
    await nursery.start(proxy.serve)
    yield proxy
    assert proxy.wrong == set()
    assert ("ApiVersions", 0) in proxy.asked, "after v3, which it does not know"


def test_every_api_of_ours_has_a_version_for_kafka_2_1() -> None:
    for key, api in API_BY_KEY.items():
        if key not in KAFKA_2_1:
            assert api.name in SINCE_2_1
            continue
        low, high = KAFKA_2_1[key]
        assert max(low, api.served[0]) <= min(high, api.served[1]), api.name


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_produce_and_consume(old: OldKafka, name: str, codec: str) -> None:
    """zstd came with 2.1 itself, as Produce v7 and Fetch v10."""
    with trio.fail_after(SECONDS):
        async with fencepost.Client(old.address) as kafka:
            async with kafka.producer(compression=codec) as producer, producer.batch() as batch:
                for number in range(500):
                    await batch.send(name, b"%d" % number, key=b"%d" % number, headers=[("h", b"x")])
            async with kafka.consumer(name, group=None) as consumer:
                read = set()
                async for record in consumer:
                    read.add(record.value)
                    if len(read) == 500:
                        break
    assert {version for api, version in old.asked if api == "Produce"} == {7}
    assert {version for api, version in old.asked if api == "Fetch"} == {10}


async def test_two_members_of_a_group(old: OldKafka, name: str) -> None:
    with trio.fail_after(SECONDS):
        async with fencepost.Client(old.address) as kafka, kafka.admin() as admin:
            await admin.create_topics(name, partitions=4, replication_factor=1)
            async with kafka.producer() as producer, producer.batch() as batch:
                for number in range(200):
                    await batch.send(name, b"%d" % number)
            read: list[bytes] = []

            async def member(enough: trio.Event) -> None:
                async with kafka.consumer(name, group=name, enable_auto_commit=True) as consumer:
                    async for found in consumer.batches(max_records=10):
                        read.extend(record.value for record in found)
                        if len(set(read)) == 200:
                            enough.set()

            enough = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(member, enough)
                nursery.start_soon(member, enough)
                await enough.wait()
                nursery.cancel_scope.cancel()
    assert {api for api, _ in old.asked} >= {"JoinGroup", "SyncGroup", "FindCoordinator", "OffsetFetch"}


async def test_transactions_with_offsets(old: OldKafka, name: str) -> None:
    """TV1: consume, transform, produce; one aborted, one committed; each record once."""
    with trio.fail_after(SECONDS):
        async with fencepost.Client(old.address) as kafka:
            async with kafka.producer() as producer, producer.batch() as batch:
                for number in range(10):
                    await batch.send(f"{name}-in", b"%d" % number, partition=0)
            turns = 0
            async with (
                kafka.consumer(f"{name}-in", group=name) as consumer,
                kafka.transactional_producer(name) as producer,
            ):
                done: list[bytes] = []
                async for found in consumer.batches(max_records=10, max_wait=0.5):
                    turns += 1
                    try:
                        async with producer.transaction() as txn:
                            for record in found:
                                await txn.send(f"{name}-out", record.value, partition=0)
                            await txn.send_offsets(consumer)
                            if turns == 1:
                                await producer.flush()  # what is to be sent again at an abort would need a new epoch
                                raise AbortableError("on purpose")
                    except AbortableError:
                        continue
                    done += [record.value for record in found]
                    if len(done) == 10:
                        break
            async with kafka.consumer(f"{name}-out", group=None) as consumer:
                read: list[bytes] = []
                async for record in consumer:
                    read.append(record.value)
                    if len(read) == 10:
                        break
            assert read == [b"%d" % number for number in range(10)]
    assert {api for api, _ in old.asked} >= {"AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"}


async def test_administration(old: OldKafka, name: str) -> None:
    with trio.fail_after(SECONDS):
        async with fencepost.Client(old.address) as kafka, kafka.admin() as admin:
            await admin.create_topics(name, partitions=1, replication_factor=1)
            assert await admin.create_topics(name, 1, replication_factor=1, if_not_exists=True) == {}
            await admin.create_partitions(name, 3)
            assert name in await admin.list_topics()
            await admin.incremental_alter_configs({"retention.ms": "3600000"}, topic=name)
            while (await admin.describe_configs(topic=name))["retention.ms"].value != "3600000":  # noqa: ASYNC110
                await trio.sleep(0.02)  # a Kafka's broker learns of it a moment after its controller
            async with kafka.producer() as producer:
                await producer.send(name, b"x", partition=0)
            place = TopicPartition(name, 0)
            assert (await admin.list_offsets({place: "latest"}))[place].offset == 1
            await admin.delete_records({place: 1})
            await admin.alter_group_offsets(name, {place: 1})
            assert (await admin.list_group_offsets(name))[place].offset == 1
            assert name in {group.group_id for group in await admin.list_groups()}
            await admin.describe_groups(name)
            await admin.delete_groups(name)
            with pytest.raises(fencepost.FatalError) as newer:
                await admin.describe_transactions()
            assert newer.value.code is ErrorCode.UNSUPPORTED_VERSION
            await admin.delete_topics(name)
