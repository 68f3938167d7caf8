"""The registrations of several brokers at their start, with the new leaders: one metadata transaction."""

import pytest
import trio

from fencepost.coordinator.metadata.commands import NewTopic
from fencepost.coordinator.metadata.several_brokers import register_all, resize
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
    await register_all(cluster.service, registrations(1, 2, 3))
    image, records = cluster.service.image, cluster.log.records()
    assert sorted(one.leader for one in image.topics_by_name["t"].assignment) == [1, 1, 2, 2, 3, 3]
    assert isinstance(records[before], BeginTransactionRecord)
    assert isinstance(records[-1], EndTransactionRecord)
    assert {number: one for number, one in enumerate(records) if isinstance(one, RegisterBrokerRecord)} == {
        one.broker_epoch: one for one in image.brokers.values()
    }
    await register_all(cluster.service, registrations(1))
    assert cluster.service.image.brokers.keys() == {1}
    found = cluster.service.image.topics_by_name["t"].assignment
    assert {one.leader for one in found} == {1}
    assert sorted(one.leader_epoch for one in found) == [0, 0, 2, 2, 2, 2]


async def test_a_crash_in_between_leaves_nothing_of_it() -> None:
    cluster = await started()
    await cluster.service.create_topics([NewTopic("t", 6)])
    cluster.log.dies_at = cluster.log.appends + 1
    with pytest.raises(PowerCut):
        await register_all(cluster.service, registrations(1, 2, 3))
    again = await started(MetadataLog.survivor(cluster.log))
    assert again.service.image.brokers == {}
    assert {one.leader for one in again.service.image.topics_by_name["t"].assignment} == {1}
    await register_all(again.service, registrations(1, 2, 3))
    assert again.service.image.brokers.keys() == {1, 2, 3}


async def test_the_number_of_brokers_changes_while_they_run() -> None:
    """KIP-455, KIP-866: one change registers a broker and begins the moves; an empty broker is unregistered.

    Nothing is placed on a broker that goes, not even by a request that comes at the same moment.
    """
    cluster = await started()
    service = cluster.service
    await service.create_topics([NewTopic("t", 6)])
    await register_all(service, registrations(1, 2))
    service.place_on((1, 2))
    await resize(service, registrations(3), (1, 2, 3))
    topic = service.image.topics_by_name["t"]
    assert sorted(service.image.brokers) == [1, 2, 3]
    assert [one.adding_replicas for one in topic.assignment].count((3,)) == 2
    assert {one.leader for one in topic.assignment} == {1, 2}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(resize, service, {}, (1, 2))
        nursery.start_soon(service.create_topics, [NewTopic("meanwhile", 6)])
    leaders = {one.leader for topic in service.image.topics_by_name.values() for one in topic.assignment}
    assert leaders <= service.image.brokers.keys()
    assert not any(one.adding_replicas for one in service.image.topics_by_name["t"].assignment)
    await service.create_topics([NewTopic("later", 6)])
    assert {one.leader for one in service.image.topics_by_name["later"].assignment} == {1, 2}


async def test_a_change_of_the_number_that_the_log_refuses_leaves_nothing() -> None:
    cluster = await started()
    await register_all(cluster.service, registrations(1, 2))
    cluster.service.place_on((1, 2))
    cluster.log.dies_at = cluster.log.appends + 1
    with pytest.raises(PowerCut):
        await resize(cluster.service, registrations(3), (1, 2, 3))
    assert sorted(cluster.service.image.brokers) == [1, 2]
