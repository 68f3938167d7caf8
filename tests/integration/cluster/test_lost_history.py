"""The database goes back in time, as with a failover to an asynchronous standby: three brokers that all lead.

What was lost is lost. But all brokers join again, agree, and serve within a lease and some seconds.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from fencepost.protocol.messages.api03_metadata import MetadataRequest
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.many_brokers import BROKERS, PARTITIONS, SECONDS, ManyBrokers, everything
from tests.kit.postgres_server import PostgresServer, postgres_or_skip
from tests.kit.waiting import until
from tests.kit.wire import PRODUCE, ConnectionEnded, Wire, batch_of, produce_request

pytestmark = pytest.mark.timeout(300)

SERVES_SECONDS = ManyBrokers.LEASE_MS / 1000 + 5


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One for each test, because it goes back."""
    with postgres_or_skip() as started:
        yield started


@pytest.fixture
def cluster(server: PostgresServer, tmp_path: Path) -> Iterator[ManyBrokers]:
    with ManyBrokers(tmp_path, server) as processes:
        processes.start_all()
        processes.make("orders")
        yield processes


def save(cluster: ManyBrokers) -> None:
    """The standby has what is there now."""
    cluster.server.save()
    cluster.engine.close()


def go_back(cluster: ManyBrokers) -> float:
    """Returns when the database serves again."""
    cluster.server.go_back()
    cluster.engine.close()
    return time.monotonic()


def topics(cluster: ManyBrokers, number: int) -> set[str]:
    """What one broker says that there is."""
    with Wire(cluster.brokers[number].connect()) as wire:
        answer = wire.call(3, 9, MetadataRequest(topics=None))
    return {str(topic.name) for topic in answer.topics if not str(topic.name).startswith("__")}


def send(cluster: ManyBrokers, topic: str, value: bytes) -> None:
    """One record into each partition; each is acknowledged."""
    acknowledged: list[int] = []

    def told(error: object, message: object) -> None:
        assert error is None, error
        acknowledged.append(1)

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": SECONDS * 1000})
    for partition in range(PARTITIONS):
        producer.produce(topic, value, partition=partition, on_delivery=told)
    producer.flush(SECONDS)
    assert len(acknowledged) == PARTITIONS


def test_brokers_that_know_a_lost_topic_forget_it_and_agree(cluster: ManyBrokers) -> None:
    """Before, two brokers had different metadata at the same offsets, and every change of the metadata hung. SIGTERM
    did not end the broker that believed to be the controller.
    """
    send(cluster, "orders", b"kept")
    save(cluster)
    cluster.make("lost")
    send(cluster, "orders", b"lost")
    back_at = go_back(cluster)
    until(lambda: all("the database lost commits" in broker.log() for broker in cluster.brokers.values()))
    cluster.leaders("orders")
    assert time.monotonic() - back_at < SERVES_SECONDS
    assert [topics(cluster, number) for number in BROKERS] == [{"orders"}] * 3
    cluster.make("fresh")
    assert [topics(cluster, number) for number in BROKERS] == [{"orders", "fresh"}] * 3
    for topic in ("orders", "fresh"):
        send(cluster, topic, b"after")
    assert everything(cluster.bootstrap, "orders") == {number: [b"kept", b"after"] for number in range(PARTITIONS)}
    assert everything(cluster.bootstrap, "fresh") == {number: [b"after"] for number in range(PARTITIONS)}
    for broker in cluster.brokers.values():
        assert broker.stop() == 0


def test_an_owner_that_has_read_a_lost_marker_accepts_records_again(cluster: ManyBrokers) -> None:
    """Before, each commit of such an owner was in conflict for ever, and no line of its log said so. One broker showed
    the lost transaction to readers of committed records, and others did not.
    """
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "pays",
            "transaction.timeout.ms": 10_000,
        }
    )
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce("orders", b"in the transaction", partition=partition)
    producer.flush(SECONDS)
    save(cluster)
    producer.commit_transaction(SECONDS)
    assert everything(cluster.bootstrap, "orders")[0] == [b"in the transaction"]
    back_at = go_back(cluster)
    until(lambda: all("the database lost commits" in broker.log() for broker in cluster.brokers.values()))
    send(cluster, "orders", b"after")
    assert time.monotonic() - back_at < SERVES_SECONDS
    until(lambda: everything(cluster.bootstrap, "orders") == {number: [b"after"] for number in range(PARTITIONS)})
    until(lambda: set(cluster.leaders("orders").values()) == set(BROKERS))


def test_a_transaction_that_lost_a_part_cannot_commit(cluster: ManyBrokers) -> None:
    """All its records were acknowledged. Before, its commit was acknowledged after the loss, and it was torn."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "pays"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("orders", b"first part", partition=0)
    producer.flush(SECONDS)
    save(cluster)
    producer.produce("orders", b"second part", partition=0)
    producer.flush(SECONDS)
    go_back(cluster)
    until(lambda: all("the database lost commits" in broker.log() for broker in cluster.brokers.values()))
    with pytest.raises(KafkaException):
        producer.commit_transaction(SECONDS)
    send(cluster, "orders", b"after")
    until(lambda: everything(cluster.bootstrap, "orders") == {number: [b"after"] for number in range(PARTITIONS)})


def test_a_transaction_whose_beginning_is_lost_cannot_commit(cluster: ManyBrokers) -> None:
    """Its first record was acknowledged, and lost, and the producer did not know. Before, it was committed torn: the
    coordinator took what came later as a whole transaction.
    """
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "pays"})
    producer.init_transactions(SECONDS)
    save(cluster)
    producer.begin_transaction()
    producer.produce("orders", b"first part", partition=0)
    producer.flush(SECONDS)
    go_back(cluster)
    until(lambda: all("the database lost commits" in broker.log() for broker in cluster.brokers.values()))
    cluster.leaders("orders")
    producer.produce("orders", b"second part", partition=1)
    with pytest.raises(KafkaException):
        producer.commit_transaction(SECONDS)
    successor = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "pays"})
    successor.init_transactions(SECONDS)
    successor.begin_transaction()
    successor.produce("orders", b"whole", partition=1)
    successor.commit_transaction(SECONDS)
    assert {one: values for one, values in everything(cluster.bootstrap, "orders").items() if values} == {1: [b"whole"]}


def connected(cluster: ClusterProcesses) -> Any:
    """A connection of the test's own to the database of the cluster."""
    import psycopg

    return psycopg.connect(cluster.store)


def waiting_commits(cluster: ClusterProcesses) -> int:
    """How many statements of brokers wait for a row that another connection has locked."""
    with connected(cluster) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%fp_append%'"
        (count,) = connection.execute(query).fetchone()
    return int(count)


def test_no_acknowledgement_is_sent_once_the_loss_is_known(server: PostgresServer, tmp_path: Path) -> None:
    """A response that waits behind a commit under way. Before, it was sent when that commit failed, and acknowledged a
    record that the database did not have any more.
    """
    large = b"x" * 100_000  # such a round puts an object, and its connection receives more meanwhile
    with ClusterProcesses(tmp_path, server) as cluster, ExitStack() as stack:
        broker = cluster.start(1, **{"cluster.linger.ms": "300", "cluster.lease.ms": "30000"})
        wire = stack.enter_context(Wire(broker.connect()))
        for topic in ("first", "second"):
            wire.create_topic(topic)
            wire.produce(topic, batch_of(b"kept"))
        server.save()
        cluster.engine.close()
        wire.produce("first", batch_of(b"lost"))
        locks = {topic: stack.enter_context(closing(connected(cluster))) for topic in ("first", "second")}
        for topic, connection in locks.items():
            connection.execute(f"SELECT FROM fencepost.head WHERE name = '{topic}-0' FOR UPDATE")
        wire.send(PRODUCE, 9, produce_request("first", batch_of(large)))
        until(lambda: waiting_commits(cluster) == 1)
        wire.send(PRODUCE, 9, produce_request("second", batch_of(large)))
        time.sleep(0.5)
        locks["first"].rollback()
        until(
            lambda: locks["first"].execute("SELECT next FROM fencepost.head WHERE name = 'first-0'").fetchone() == (3,)
        )
        until(lambda: waiting_commits(cluster) == 1)
        wire.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):  # else the first answer waits for nothing, and this test shows nothing
            wire.receive(PRODUCE, 9)
        wire.socket.settimeout(60)
        server.go_back()
        with pytest.raises(ConnectionEnded):
            wire.receive(PRODUCE, 9)
        assert "the database lost commits" in broker.log()
