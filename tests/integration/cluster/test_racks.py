"""Three broker processes in three racks: consumers read from the broker of their rack (KIP-392)."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from fencepost.broker.config.cluster_settings import RACK_AWARE
from tests.kit.many_brokers import BROKERS, PARTITIONS, SECONDS, ManyBrokers
from tests.kit.postgres_server import PostgresServer
from tests.kit.waiting import until

RACKS = {1: "a", 2: "b", 3: "c"}
VALUE_BYTES = 1000


class Racks(ManyBrokers):
    """The brokers, with racks."""

    def settings_of(self, number: int) -> dict[str, str]:
        return {"broker.rack": RACKS[number], "replica.selector.class": RACK_AWARE}


@pytest.fixture
def cluster(server: PostgresServer, tmp_path: Path) -> Iterator[Racks]:
    with Racks(tmp_path, server) as processes:
        processes.start_all()
        processes.make("orders")
        yield processes


class Reader:
    """A consumer of rack b that reads all partitions from their beginning."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self.received: dict[int, int] = {}
        """Bytes that came from each broker, as librdkafka counts them."""
        self.values: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reads",
                "client.rack": "b",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "statistics.interval.ms": 100,
                "stats_cb": self._note,
                **settings,
            }
        )
        self._consumer.assign([TopicPartition("orders", number, 0) for number in range(PARTITIONS)])

    def _note(self, statistics: str) -> None:
        for broker in json.loads(statistics)["brokers"].values():
            if broker["nodeid"] in BROKERS:
                self.received[broker["nodeid"]] = broker["rxbytes"]

    def read(self, count: int) -> None:
        """Return when each partition has so many values, and a little later, in case that one comes twice."""
        deadline = time.monotonic() + SECONDS
        while any(len(values) < count for values in self.values.values()):
            assert time.monotonic() < deadline, {n: len(values) for n, values in self.values.items()}
            self._poll(0.2)
        self._poll(0.5)

    def _poll(self, seconds: float) -> None:
        for record in self._consumer.consume(1000, seconds):
            assert record.error() is None, record.error()
            partition, value = record.partition(), record.value()
            assert partition is not None
            assert value is not None
            self.values[partition].append(value)

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


def write(producer: Producer, numbers: range) -> list[bytes]:
    """Transactions over all partitions; every fourth is aborted. Returns the committed values of each partition."""
    committed = []
    for number in numbers:
        value = (b"%d " % number).ljust(VALUE_BYTES, b".")
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("orders", value, partition=partition)
        producer.flush(SECONDS)  # aborted records are in the logs, too
        if number % 4 == 3:
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
            committed.append(value)
    return committed


def test_a_consumer_reads_from_the_broker_of_its_rack_and_goes_on_when_that_dies(cluster: Racks) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "all"})
    producer.init_transactions(SECONDS)
    expected = write(producer, range(12))
    reader = Reader(cluster.bootstrap)
    reader.read(len(expected))
    expected += write(producer, range(12, 20))  # while the consumer waits for records
    reader.read(len(expected))
    assert reader.values == dict.fromkeys(range(PARTITIONS), expected), "everything once, and nothing aborted"
    until(lambda: reader._poll(0.1) or sum(reader.received.values()) > PARTITIONS * len(expected) * VALUE_BYTES)
    others = reader.received[1] + reader.received[3]
    assert others < 0.1 * reader.received[2], reader.received
    cluster.brokers[2].kill()
    expected += write(producer, range(20, 28))
    reader.read(len(expected))
    assert reader.values == dict.fromkeys(range(PARTITIONS), expected)
    reader.close()
