"""`Cluster`: each broker answers for what it leads, and unmodified clients follow what moves."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fencepost import sync
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.api12_heartbeat import HeartbeatRequest
from fencepost.protocol.messages.api16_list_groups import ListGroupsRequest
from fencepost.protocol.messages.api60_describe_cluster import DescribeClusterRequest
from fencepost.testing import Cluster
from tests.kit.wire import ConnectionEnded, Wire, batch_of, values_in

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.create_topic("orders", partitions=3)
        yield cluster


@contextmanager
def wire(cluster: Cluster, node: int) -> Iterator[Wire]:
    with Wire(socket.create_connection(cluster.addresses[node], timeout=30)) as one:
        yield one


def epoch_named_to(asked: Wire) -> int:
    """The leader epoch of orders-0 that a broker names."""
    answer = asked.call(3, 12, MetadataRequest(topics=[MetadataRequestTopic(name="orders")]))
    epoch: int = answer.topics[0].partitions[0].leader_epoch
    return epoch


# What each broker answers


def test_metadata_name_the_brokers_and_spread_the_leaders(cluster: Cluster) -> None:
    with sync.Client(cluster.bootstrap) as kafka, kafka.admin() as admin:
        found = admin.describe_cluster()
        assert {one.broker_id: (one.host, one.port) for one in found.brokers} == cluster.addresses
        assert found.controller_id == cluster.controller == 1
    assert sorted(cluster.leader("orders", part) for part in range(3)) == [1, 2, 3]
    for topics in (None, [MetadataRequestTopic(name="orders")]):
        with wire(cluster, 2) as asked:
            answer = asked.call(3, 12, MetadataRequest(topics=topics))
            topic = next(one for one in answer.topics if one.name == "orders")
            named = {part.partition_index: part.leader_id for part in topic.partitions}
            assert named == {part: cluster.leader("orders", part) for part in range(3)}
            assert {tuple(part.isr_nodes) for part in topic.partitions} == {(1, 2, 3)}


def test_a_broker_that_does_not_lead_refuses_what_it_is_asked(cluster: Cluster) -> None:
    cluster.move_leader("orders", 0, to=2)
    with wire(cluster, 2) as leader, wire(cluster, 3) as other:
        assert leader.produce("orders", batch_of(b"one")).error_code == 0
        assert other.produce("orders", batch_of(b"two")).error_code == NOT_LEADER
        assert values_in(leader.fetch("orders")) == [b"one"]
        refused = other.fetch("orders", max_wait_ms=30_000)
        assert (refused.error_code, refused.records) == (NOT_LEADER, None)
        assert other.offset_of("orders", -1).error_code == NOT_LEADER
        assert other.end_of_epoch("orders", 0).error_code == NOT_LEADER
        assert leader.offset_of("orders", -1).offset == 1
    assert [record.value for record in cluster.records("orders")] == [b"one"]


def test_a_fetch_that_waits_is_refused_when_the_leader_moves(cluster: Cluster) -> None:
    cluster.move_leader("orders", 0, to=2)
    with wire(cluster, 2) as old, wire(cluster, 3) as new:
        cluster.delay("Fetch", seconds=0.3)
        asking = threading.Timer(0.1, lambda: cluster.move_leader("orders", 0, to=3))
        asking.start()
        assert old.fetch("orders", max_wait_ms=1).error_code == NOT_LEADER
        asking.join()
        assert new.produce("orders", batch_of(b"one")).error_code == 0
        assert new.fetch("orders", max_wait_ms=1).error_code == 0


def test_a_request_for_several_leaders_has_an_answer_for_each_partition(cluster: Cluster) -> None:
    """The one that the broker leads is appended; for the other it names the leader (KIP-951)."""
    cluster.move_leader("orders", 0, to=1)
    cluster.move_leader("orders", 1, to=2)
    cluster.move_leader("orders", 1, to=3)
    parts = [PartitionProduceData(index=at, records=bytes(batch_of(b"one"))) for at in (0, 1)]
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=parts)]
    )
    with wire(cluster, 1) as asked:
        answer = asked.call(0, 11, request)
    results = {part.index: part for topic in answer.responses for part in topic.partition_responses}
    assert {index: part.error_code for index, part in results.items()} == {0: 0, 1: NOT_LEADER}
    assert results[1].current_leader.leader_id == 3
    assert {(one.node_id, one.port) for one in answer.node_endpoints} == {
        (node, port) for node, (_, port) in cluster.addresses.items()
    }
    assert [(record.partition, record.value) for record in cluster.records("orders")] == [(0, b"one")]
    request.acks = 0
    with wire(cluster, 1) as asked:
        asked.send(0, 11, request)
        with pytest.raises(ConnectionEnded):
            asked.receive(0, 11)


def test_each_move_begins_an_epoch(cluster: Cluster) -> None:
    """The answer to a reader with an older one is an error, and names where the older one ends (KIP-320)."""
    cluster.move_leader("orders", 0, to=1)
    with wire(cluster, 1) as first:
        epoch = epoch_named_to(first)
        assert first.produce("orders", batch_of(b"one")).error_code == 0
    cluster.move_leader("orders", 0, to=2)
    cluster.move_leader("orders", 0, to=2)
    with wire(cluster, 2) as second:
        assert epoch_named_to(second) == epoch + 1
        assert second.produce("orders", batch_of(b"two")).error_code == 0
        assert second.fetch("orders", current_leader_epoch=epoch).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert second.fetch("orders", current_leader_epoch=epoch + 1).error_code == 0
        end = second.end_of_epoch("orders", epoch)
        assert (end.leader_epoch, end.end_offset) == (epoch, 1)
    cluster.restart()
    with wire(cluster, 2) as second:
        assert second.fetch("orders", current_leader_epoch=epoch + 1).error_code == 0


def test_only_the_coordinator_answers_for_a_group(cluster: Cluster) -> None:
    cluster.move_coordinator("billing", to=3)
    assert cluster.coordinator("billing") == 3
    beat = HeartbeatRequest(group_id="billing", generation_id=1, member_id="one")
    offsets = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="billing", topics=None)])
    with wire(cluster, 1) as other, wire(cluster, 3) as coordinator:
        [found] = other.call(10, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=["billing"])).coordinators
        assert (found.node_id, (found.host, found.port)) == (3, cluster.addresses[3])
        old = other.call(10, 3, FindCoordinatorRequest(key_type=0, key="billing"))
        assert (old.node_id, old.port) == (3, cluster.addresses[3][1])
        assert other.call(12, 4, beat).error_code == ErrorCode.NOT_COORDINATOR
        assert coordinator.call(12, 4, beat).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert other.call(9, 8, offsets).groups[0].error_code == ErrorCode.NOT_COORDINATOR
        assert coordinator.call(9, 8, offsets).groups[0].error_code == 0
        assert coordinator.commit_offsets("billing", "orders", 0) == 0
        assert other.commit_offsets("billing", "orders", 0) == ErrorCode.NOT_COORDINATOR
        assert [one.group_id for one in coordinator.call(16, 3, ListGroupsRequest()).groups] == ["billing"]
        assert other.call(16, 3, ListGroupsRequest()).groups == []


def test_only_the_coordinator_answers_for_a_transactional_id(cluster: Cluster) -> None:
    cluster.move_coordinator(transactional_id="billing-1", to=2)
    assert cluster.coordinator(transactional_id="billing-1") == 2
    with wire(cluster, 1) as other, wire(cluster, 2) as coordinator:
        producer = coordinator.init_producer_id("billing-1")
        for one, code in ((other, ErrorCode.NOT_COORDINATOR), (coordinator, ErrorCode.NONE)):
            if code is ErrorCode.NONE:
                one.add_partitions("billing-1", producer, "orders", 0)
            answer = one.end_txn("billing-1", producer, commit=True)
            assert answer.error_code == code
    with pytest.raises(ValueError, match="not both"):
        cluster.coordinator("billing", transactional_id="billing-1")
    with pytest.raises(ValueError, match="name a group"):
        cluster.coordinator()


def test_clients_log_in_at_each_broker_by_tls() -> None:
    with Cluster(brokers=2, tls=True, users={"alice": "alice-secret"}) as cluster:
        cluster.create_topic("orders")
        for node in (1, 2):
            cluster.move_leader("orders", to=node)
            with sync.Client.from_config(cluster.client_config("alice")) as kafka, kafka.producer() as producer:
                producer.send("orders", f"{node}".encode())
        cluster.assert_exactly_once("orders", ["1", "2"])


# One of them is stopped, cut off, slow


def test_a_stopped_broker_refuses_connections_and_leads_nothing(cluster: Cluster) -> None:
    for part in range(3):
        cluster.move_leader("orders", part, to=1)
    with wire(cluster, 1) as open_before:
        cluster.stop_broker(1)
        with pytest.raises((ConnectionEnded, ConnectionError)):
            open_before.call(60, 0, DescribeClusterRequest())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(cluster.addresses[1])
    assert {cluster.leader("orders", part) for part in range(3)} == {2, 3}
    with wire(cluster, 2) as asked:
        answer = asked.call(60, 0, DescribeClusterRequest())
        assert ([one.broker_id for one in answer.brokers], answer.controller_id) == ([2, 3], 2)
    cluster.restart()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(cluster.addresses[1])
    cluster.start_broker(1)
    cluster.move_leader("orders", 0, to=1)
    with wire(cluster, 1) as asked:
        assert asked.produce("orders", batch_of(b"one")).error_code == 0


def test_orders_that_make_no_sense_are_refused(cluster: Cluster) -> None:
    cluster.stop_broker(2)
    for order in (
        lambda: cluster.stop_broker(2),
        lambda: cluster.start_broker(3),
        lambda: cluster.move_leader("orders", 0, to=2),
        lambda: cluster.move_controller(to=4),
        lambda: cluster.cut_off(2),
        lambda: Cluster(brokers=0),
    ):
        with pytest.raises(ValueError, match="broker"):
            order()
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="no time to wait"):
            cluster.slow(1, seconds)
    with pytest.raises(LookupError, match="no partition 0 of 'nope': there is no such topic"):
        cluster.leader("nope")
    with pytest.raises(LookupError, match="no partition 3 of 'orders': the topic has 3 partitions"):
        cluster.move_leader("orders", 3, to=1)
    cluster.stop_broker(1)
    with pytest.raises(ValueError, match="the last one"):
        cluster.stop_broker(3)
    assert cluster.controller == 3


def test_a_broker_that_is_cut_off_is_silent_until_it_is_back(cluster: Cluster) -> None:
    cluster.move_leader("orders", 0, to=2)
    with wire(cluster, 2) as far:
        cluster.cut_off(2)
        far.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            far.produce("orders", batch_of(b"one"))
        assert cluster.records("orders") == []
        with wire(cluster, 3) as near:
            assert near.call(60, 0, DescribeClusterRequest()).error_code == 0
        cluster.heal()
        far.socket.settimeout(30)
        assert far.receive(0, 9)[1].responses[0].partition_responses[0].error_code == 0
    assert [record.value for record in cluster.records("orders")] == [b"one"]


def test_a_slow_broker_is_late(cluster: Cluster) -> None:
    cluster.move_controller(to=3)
    cluster.slow(2, 0.4)
    with wire(cluster, 2) as far:
        began = time.monotonic()
        assert far.call(60, 0, DescribeClusterRequest()).controller_id == 3
        assert time.monotonic() - began >= 0.4
        cluster.reconnect(2)
        began = time.monotonic()
        far.call(60, 0, DescribeClusterRequest())
        assert time.monotonic() - began < 0.4
