"""Three broker processes in three racks: consumers read from the broker of their rack (KIP-392)."""

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from fencepost.broker.config.checks import RACK_AWARE
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.interop.java.jars import Unavailable, class_path, java
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.java import skip_or_fail
from tests.kit.many_brokers import BROKERS, PARTITIONS, SECONDS, ManyBrokers
from tests.kit.postgres_server import PostgresServer
from tests.kit.waiting import until
from tests.kit.wire import Wire, fetch_request

RACKS = {1: "a", 2: "b", 3: "c"}
VALUE_BYTES = 1000


class Racks(ManyBrokers):
    """The brokers, with racks."""

    settings: dict[str, str]

    def settings_of(self, number: int) -> dict[str, str]:
        return {
            "broker.rack": RACKS[number],
            "replica.selector.class": RACK_AWARE,
            "metrics.listen": "127.0.0.1:0",
            **self.settings,
        }

    def sent_bytes(self) -> dict[int, float]:
        """The bytes of records that each broker has sent."""
        return {number: self._metric(number, 'bytesout_total{topic="orders"}') for number in BROKERS}

    def _metric(self, number: int, name: str) -> float:
        with urllib.request.urlopen(f"http://{self.brokers[number].facts['metrics']}/metrics", timeout=100) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if name in line)


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    """Further settings of all brokers."""
    return getattr(request, "param", {})


@pytest.fixture
def cluster(server: PostgresServer, tmp_path: Path, settings: dict[str, str]) -> Iterator[Racks]:
    with Racks(tmp_path, server) as processes:
        processes.settings = settings
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

    def counted(self) -> dict[int, int]:
        """`received`, as of now."""
        self._poll(0.2)
        return self.received

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
        try:
            if number % 4 != 3:
                producer.commit_transaction(SECONDS)
                committed.append(value)
                continue
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():  # slots that move may cause that
                raise
        producer.abort_transaction(SECONDS)
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
    until(reader.counted, lambda received: received[2] > PARTITIONS * len(expected) * VALUE_BYTES)
    assert reader.received[1] + reader.received[3] < 0.1 * reader.received[2], reader.received
    cluster.brokers[2].kill()
    expected += write(producer, range(20, 28))
    reader.read(len(expected))
    assert reader.values == dict.fromkeys(range(PARTITIONS), expected)
    cluster.brokers[2].start()  # its partitions move back while they are read
    expected += write(producer, range(28, 36))
    reader.read(len(expected))
    assert reader.values == dict.fromkeys(range(PARTITIONS), expected)
    reader.close()


HASTY = {
    "cluster.merge.interval.ms": "20",
    "cluster.merge.min.rows": "2",
    "cluster.gc.interval.ms": "20",
    "cluster.inline.max.bytes": "2000",
    "cluster.linger.ms": "0",
    "cluster.cache.max.bytes": str(1 << 20),
    "cluster.tail.max.bytes": str(1 << 20),
}
"""Rows are merged, objects deleted, and local copies dropped all the time."""


@pytest.mark.parametrize("settings", [HASTY], indirect=True)
def test_rows_that_are_merged_and_deleted_meanwhile_are_read_once(cluster: Racks) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "all"})
    producer.init_transactions(SECONDS)
    expected: list[bytes] = []
    late = Reader(cluster.bootstrap)
    for start in range(0, 40, 20):
        expected += write(producer, range(start, start + 20))
        late.read(len(expected))
        early = Reader(cluster.bootstrap)
        early.read(len(expected))
        for reader in (late, early):
            assert reader.values == dict.fromkeys(range(PARTITIONS), expected)
            assert reader.received[1] + reader.received[3] < 0.1 * reader.received[2], reader.received
        early.close()
    late.close()


def test_replicas_are_told_and_only_records_come_from_followers(cluster: Racks) -> None:
    """ListOffsets and OffsetForLeaderEpoch stay at the leader, as in Kafka (KIP-392)."""
    leaders = cluster.leaders("orders")
    partition = next(number for number, broker in leaders.items() if broker == 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce("orders", b"x", partition=partition)
    assert producer.flush(SECONDS) == 0
    for number in BROKERS:
        with Wire(cluster.brokers[number].connect()) as wire:
            told = wire.call(3, 9, MetadataRequest(topics=[MetadataRequestTopic(name="orders")])).topics[0].partitions
            replicas = {one.partition_index: one.replica_nodes for one in told}
            assert replicas[partition] == [1, 2, 3]
            assert all(set(one) == set(BROKERS) and one[0] == leaders[at] for at, one in replicas.items())
    with Wire(cluster.brokers[2].connect()) as wire:
        ask = fetch_request("orders", partition=partition, max_wait_ms=10_000)
        (found,) = wire.call(1, 12, ask).responses[0].partitions
        assert (found.error_code, found.high_watermark, bool(found.records)) == (0, 1, True)
        one = ListOffsetsPartition(partition_index=partition, timestamp=-1)
        listed = wire.call(2, 7, ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=[one])]))
        assert listed.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        (epoch,) = (
            wire.call(
                23,
                4,
                OffsetForLeaderEpochRequest(
                    replica_id=-1,
                    topics=[
                        OffsetForLeaderTopic(
                            topic="orders", partitions=[OffsetForLeaderPartition(partition=partition, leader_epoch=1)]
                        )
                    ],
                ),
            )
            .topics[0]
            .partitions
        )
        assert epoch.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_standby_serves_the_consumers_of_its_rack(server: PostgresServer, tmp_path: Path) -> None:
    """With one active broker (the default) all others can serve reads."""
    with ClusterProcesses(tmp_path, server) as cluster:
        for number in (1, 2):
            cluster.start(number, **{"broker.rack": RACKS[number], "replica.selector.class": RACK_AWARE})
        cluster.wait_active(1)
        producer = Producer({"bootstrap.servers": cluster.brokers[1].address})
        producer.produce("orders", b"x", partition=0)
        assert producer.flush(SECONDS) == 0
        with Wire(cluster.brokers[1].connect()) as wire:
            ask = fetch_request("orders")
            ask.rack_id = "b"
            answer = until(lambda: wire.call(1, 12, ask).responses[0].partitions[0], lambda one: not one.records)
            assert answer.preferred_read_replica == 2
        with Wire(cluster.brokers[2].connect()) as wire:
            ask = fetch_request("orders", max_wait_ms=10_000)
            # The topic is new: the standby may not know it yet.
            found = until(lambda: wire.call(1, 12, ask).responses[0].partitions[0], lambda one: not one.error_code)
            assert (found.high_watermark, bool(found.records)) == (1, True)


@pytest.mark.interop
def test_javas_consumer_reads_from_the_broker_of_its_rack(cluster: Racks) -> None:
    """Java accepts a preferred replica only if Metadata names it as a replica of the partition (KIP-392)."""
    try:
        command = [java(), "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", class_path()]
    except Unavailable as missing:
        skip_or_fail(missing)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "all"})
    producer.init_transactions(SECONDS)
    expected = write(producer, range(8))
    command += ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", cluster.bootstrap]
    command += ["--topic", "orders", "--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", "15000"]
    command += ["--max-messages", str(PARTITIONS * len(expected)), "--command-property", "client.rack=b"]
    run = subprocess.run(command, capture_output=True, timeout=200, check=False)
    assert sorted(run.stdout.splitlines()) == sorted(expected * PARTITIONS), run.stderr[-2000:]
    sent = cluster.sent_bytes()
    assert sent[2] > PARTITIONS * len(expected) * VALUE_BYTES
    assert sent[1] == sent[3] == 0, sent
