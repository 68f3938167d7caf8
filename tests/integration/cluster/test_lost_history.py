"""The database goes back in time, as with a failover to an asynchronous standby: three brokers that all lead.

What was lost is lost. But all brokers join again, agree, and serve within a lease and some seconds.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from fencepost.protocol.messages.api03_metadata import MetadataRequest
from tests.kit.many_brokers import BROKERS, PARTITIONS, SECONDS, ManyBrokers, everything
from tests.kit.postgres_server import PostgresServer, postgres_or_skip
from tests.kit.waiting import until
from tests.kit.wire import Wire

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
    assert set(cluster.leaders("orders").values()) == set(BROKERS)


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
