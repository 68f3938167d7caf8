"""Three broker processes over a real PostgreSQL that all lead partitions, and clients of others."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.kit.many_brokers import PARTITIONS, SECONDS, ManyBrokers, everything
from tests.kit.postgres_server import PostgresServer
from tests.kit.store_commands import run
from tests.kit.waiting import until
from tests.kit.wire import Wire, batch_of, produce_request


@pytest.fixture
def cluster(server: PostgresServer, tmp_path: Path) -> Iterator[ManyBrokers]:
    with ManyBrokers(tmp_path, server) as processes:
        processes.start_all()
        processes.make("orders")
        yield processes


def test_a_transaction_over_partitions_of_all_brokers_is_whole(cluster: ManyBrokers) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "all"})
    producer.init_transactions(SECONDS)
    for number in range(20):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("orders", b"%d" % number, partition=partition)
        if number % 4 == 3:
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
        # Every leader shows the end of the transaction as soon as the producer knows it.
        if number == 10:
            assert all(len(values) == number + 1 - 2 for values in everything(cluster.bootstrap, "orders").values())
    expected = [b"%d" % number for number in range(20) if number % 4 != 3]
    found = everything(cluster.bootstrap, "orders")
    assert found == dict.fromkeys(range(PARTITIONS), expected)


def test_groups_and_offsets_are_coordinated_by_all_brokers(cluster: ManyBrokers) -> None:
    """Twelve groups are on several brokers; a transaction commits the offsets of each."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "copier"})
    producer.init_transactions(SECONDS)
    for number in range(12):
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": f"group-{number}", "enable.auto.commit": False}
        consumer = Consumer(settings)
        producer.begin_transaction()
        producer.produce("orders", b"x", partition=number)
        offsets = [TopicPartition("orders", partition, number + 1) for partition in range(PARTITIONS)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
        producer.commit_transaction(SECONDS)
        found = consumer.committed([TopicPartition("orders", partition) for partition in range(PARTITIONS)], SECONDS)
        assert [one.offset for one in found] == [number + 1] * PARTITIONS
        consumer.close()


@pytest.mark.parametrize("version", [7, 9])
def test_any_broker_fetches_the_offsets_of_a_group(cluster: ManyBrokers, version: int) -> None:
    """librdkafka's consumers stop for ever after NOT_COORDINATOR here (confluentinc/librdkafka#5586)."""
    groups = [f"group-{number}" for number in range(6)]
    for number, group in enumerate(groups):
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition("orders", 0, 100 + number)], asynchronous=False)
        consumer.close()
    for broker in cluster.brokers.values():
        with Wire(broker.connect()) as wire:
            if version < 8:
                topic = OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
                found = [
                    wire.call(9, version, OffsetFetchRequest(group_id=group, topics=[topic])).topics for group in groups
                ]
            else:
                many = OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
                asked = [OffsetFetchRequestGroup(group_id=group, topics=[many]) for group in groups]
                answer = wire.call(9, version, OffsetFetchRequest(groups=asked))
                assert [one.group_id for one in answer.groups] == groups
                found = [one.topics for one in answer.groups]
        assert [topics[0].partitions[0].committed_offset for topics in found] == [100, 101, 102, 103, 104, 105]


def test_a_request_for_a_partition_of_another_broker_is_answered_with_that_one(cluster: ManyBrokers) -> None:
    """KIP-951: producers and consumers go there at once, without Metadata."""
    leaders, ports = cluster.leaders("orders"), {number: one.port for number, one in cluster.brokers.items()}
    for number, broker in cluster.brokers.items():
        foreign = [partition for partition, leader in leaders.items() if leader != number]
        with Wire(broker.connect()) as wire:
            for partition in foreign[:6]:
                answer = wire.call(0, 10, produce_request("orders", batch_of(b"x"), partition=partition))
                refused = answer.responses[0].partition_responses[0]
                assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert [(one.node_id, one.port) for one in answer.node_endpoints] == [
                    (leaders[partition], ports[leaders[partition]])
                ]
                read = wire.fetch("orders", partition=partition, version=12)
                assert read.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert refused.current_leader.leader_id == read.current_leader.leader_id == leaders[partition]
                assert refused.current_leader.leader_epoch == read.current_leader.leader_epoch >= 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_only_the_partitions_of_a_broker_that_goes_move(cluster: ManyBrokers, how: signal.Signals) -> None:
    before = cluster.leaders("orders")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    sent: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, record: object) -> None:
        if error is not None:
            failed.append(error)

    for number in range(300):
        if number == 100:
            cluster.brokers[2].signal(how)
        for partition in range(PARTITIONS):
            sent[partition].append(b"%d" % number)
            producer.produce("orders", b"%d" % number, partition=partition, on_delivery=delivered)
        producer.poll(0.01)
    assert producer.flush(SECONDS) == 0
    assert not failed
    until(lambda: cluster.shares() == {1, 3})
    until(lambda: set(cluster.leaders("orders").values()) == {1, 3})
    after = cluster.leaders("orders")
    assert {number: after[number] for number in after if before[number] != 2} == {
        number: leader for number, leader in before.items() if leader != 2
    }
    assert everything(cluster.brokers[1].address, "orders") == sent
    cluster.brokers[2].kill()
    cluster.brokers[2].start()
    until(lambda: cluster.leaders("orders") == before)
    assert everything(cluster.brokers[1].address, "orders") == sent


def test_a_drained_broker_leads_nothing_and_clients_go_on(cluster: ManyBrokers) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "drains"})
    producer.init_transactions(SECONDS)
    assert cluster.engine.drain(3, True)
    for number in range(40):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("orders", b"%d" % number, partition=partition)
        try:
            producer.commit_transaction(SECONDS)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(SECONDS)
    until(lambda: cluster.shares() == {1, 2})
    found = everything(cluster.bootstrap, "orders")
    assert all(values == found[0] for values in found.values()), "each transaction is whole"
    assert len(found[0]) >= 30
    assert cluster.engine.drain(3, False)
    until(lambda: cluster.shares() == {1, 2, 3})


def test_the_database_tells_who_leads_what_and_why_not(cluster: ManyBrokers) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for partition in range(PARTITIONS):
        producer.produce("orders", b"x", partition=partition)
    assert producer.flush(SECONDS) == 0
    stores = ("--store", cluster.store)
    told = json.loads(run("cluster", "owners", "orders", *stores, "--json").stdout)
    assert [(one["broker"], one["state"]) for one in told["brokers"]] == [(1, "leads"), (2, "leads"), (3, "leads")]
    assert sum(one["slots"] for one in told["brokers"]) == 256
    leaders = cluster.leaders("orders")
    assert {one["partition"]: one["broker"] for one in told["partitions"]} == {
        f"orders-{number}": leader for number, leader in leaders.items()
    }
    drained = run("cluster", "drain", "3", *stores)
    assert (drained.returncode, "Broker 3 owns 0 slots." in drained.stdout) == (0, True), (
        drained.stdout + drained.stderr
    )
    shown = run("cluster", "owners", *stores)
    assert (shown.returncode, " drained " in shown.stdout) == (0, True), shown.stdout
    assert run("cluster", "drain", "3", "--undo", *stores).returncode == 0
    until(lambda: cluster.shares() == {1, 2, 3})
    for broker in cluster.brokers.values():
        broker.kill()
    why = "which does not renew its lease; no other broker is ready to take over: start one"
    late = until(lambda: run("cluster", "owners", *stores), lambda told: why in told.stderr)
    assert (late.returncode, "gone, renewed its lease" in late.stdout) == (1, True), late.stdout
    unknown = run("cluster", "drain", "77", *stores)
    assert (unknown.returncode, "no broker 77 ever joined" in unknown.stderr) == (1, True)
