"""The registrations of several brokers at their start, with the new leaders: one metadata transaction."""

import pytest

from fencepost.coordinator.metadata.commands import NewTopic
from fencepost.coordinator.metadata.start_records import Registration
from fencepost.protocol.metadata_record_types import (
    BeginTransactionRecord,
    EndTransactionRecord,
    RegisterBrokerRecord,
)
from tests.unit.metadata.kit import MetadataLog, PowerCut, started


def registrations(*node_ids: int) -> dict[int, Registration]:
    return {node: Registration(bytes([node]) * 16, ()) for node in node_ids}


async def test_brokers_are_registered_and_partitions_placed_in_one_transaction() -> None:
    """KIP-868; the broker epoch is the offset of the registration (ClusterControlManager)."""
    cluster = await started()
    await cluster.service.create_topics([NewTopic("t", 6)])
    before = len(cluster.log.records())
    await cluster.service.register_all(registrations(1, 2, 3))
    image, records = cluster.service.image, cluster.log.records()
    assert sorted(one.leader for one in image.topics_by_name["t"].assignment) == [1, 1, 2, 2, 3, 3]
    assert isinstance(records[before], BeginTransactionRecord)
    assert isinstance(records[-1], EndTransactionRecord)
    assert {number: one for number, one in enumerate(records) if isinstance(one, RegisterBrokerRecord)} == {
        one.broker_epoch: one for one in image.brokers.values()
    }
    await cluster.service.register_all(registrations(1))
    assert cluster.service.image.brokers.keys() == {1}
    found = cluster.service.image.topics_by_name["t"].assignment
    assert {one.leader for one in found} == {1}
    assert sorted(one.leader_epoch for one in found) == [0, 0, 2, 2, 2, 2]


async def test_a_crash_in_between_leaves_nothing_of_it() -> None:
    cluster = await started()
    await cluster.service.create_topics([NewTopic("t", 6)])
    cluster.log.dies_at = cluster.log.appends + 1
    with pytest.raises(PowerCut):
        await cluster.service.register_all(registrations(1, 2, 3))
    again = await started(MetadataLog.survivor(cluster.log))
    assert again.service.image.brokers == {}
    assert {one.leader for one in again.service.image.topics_by_name["t"].assignment} == {1}
    await again.service.register_all(registrations(1, 2, 3))
    assert again.service.image.brokers.keys() == {1, 2, 3}
