"""`__consumer_offsets` is a partition like any other: a transaction holds its last stable offset (G8, T5; row I1)."""

import pytest

from fencepost.coordinator.partitioning import partition_for
from fencepost.protocol.errors import ErrorCode
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
        assert wire.commit_offsets(GROUP, "t", 1) is ErrorCode.NONE
        producer = wire.init_producer_id("txn")
        before = ends(file_broker)
        assert before[0] == before[1]
        assert wire.commit_in_transaction(GROUP, "t", 5, "txn", producer) is ErrorCode.NONE
        assert wire.commit_offsets(GROUP, "t", 2) is ErrorCode.NONE
        assert ends(file_broker) == (before[1], before[1] + 2)
    file_broker.kill()
    file_broker.start()
    assert ends(file_broker) == (before[1], before[1] + 2)
    with Wire(file_broker.connect()) as wire:
        assert wire.end_txn("txn", producer, commit=commits, version=5).error_code == ErrorCode.NONE
    assert ends(file_broker) == (before[1] + 3, before[1] + 3)
