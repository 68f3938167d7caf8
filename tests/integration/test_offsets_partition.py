"""`__consumer_offsets` is a partition like any other: a transaction holds its last stable offset (G8, T5; row I1)."""

import pytest

from fencepost.coordinator.partitioning import partition_for
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api08_offset_commit as m8
from fencepost.protocol.messages import api28_txn_offset_commit as m28
from fencepost.protocol.messages import api32_describe_configs as m32
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire

OFFSETS, GROUP, LATEST = "__consumer_offsets", "g", -1
PLACE = partition_for(GROUP, 50)


def ends(broker: BrokerProcess) -> tuple[int, int]:
    """Last stable offset and high watermark of the group's partition."""
    with Wire(broker.connect()) as wire:
        stable, high = (wire.offset_of(OFFSETS, LATEST, isolation=level, partition=PLACE).offset for level in (1, 0))
        return stable, high


def commit(wire: Wire, offset: int) -> None:
    partition = m8.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [m8.OffsetCommitRequestTopic(name="t", partitions=[partition])]
    answer = wire.call(8, 8, m8.OffsetCommitRequest(group_id=GROUP, topics=topics))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def commit_in(wire: Wire, name: str, producer: tuple[int, int], offset: int) -> None:
    """TxnOffsetCommit v5, which adds the group's partition to the transaction by itself (T16)."""
    partition = m28.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = [m28.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])]
    identity = {"transactional_id": name, "producer_id": producer[0], "producer_epoch": producer[1]}
    answer = wire.call(28, 5, m28.TxnOffsetCommitRequest(group_id=GROUP, topics=topics, **identity))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_it_has_fifty_partitions_and_is_compacted_g8(file_broker: BrokerProcess) -> None:
    with Wire(file_broker.connect()) as wire:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS)])
        [topic] = wire.call(3, 12, asked).topics
        assert (len(topic.partitions), topic.is_internal) == (50, True)
        resource = m32.DescribeConfigsResource(
            resource_type=2, resource_name=OFFSETS, configuration_keys=["cleanup.policy"]
        )
        [result] = wire.call(32, 4, m32.DescribeConfigsRequest(resources=[resource])).results
        assert result.configs[0].value == "compact"


@pytest.mark.parametrize("commits", [True, False])
def test_an_open_transaction_holds_its_last_stable_offset_also_over_a_crash_t5(
    file_broker: BrokerProcess, commits: bool
) -> None:
    """What the replay rebuilds is what was there: pending positions, and the offset that readers stop at."""
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("t")
        commit(wire, 1)
        producer = wire.init_producer_id("txn")
        before = ends(file_broker)
        assert before[0] == before[1]
        commit_in(wire, "txn", producer, 5)
        commit(wire, 2)
        assert ends(file_broker) == (before[1], before[1] + 2)
    file_broker.kill()
    file_broker.start()
    assert ends(file_broker) == (before[1], before[1] + 2)
    with Wire(file_broker.connect()) as wire:
        assert wire.end_txn("txn", producer, commit=commits, version=5).error_code == ErrorCode.NONE
    assert ends(file_broker) == (before[1] + 3, before[1] + 3)
