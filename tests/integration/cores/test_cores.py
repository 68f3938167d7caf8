"""`fencepost serve --cores 3`: one broker for each core, as clients and operators see them."""

import json
import os
import re
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import fencepost
import fencepost.sync
from fencepost.testing.reserved_port import free_port
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until

CORES = 3
TOPIC = "spread"
PARTITIONS = 6
"""Two on each core."""


class Cores:
    """A supervisor and its cores."""

    def __init__(self, process: BrokerProcess, pages: int) -> None:
        self.process = process
        self._pages = pages

    def pid(self, number: int) -> int:
        """The newest process of a core."""
        return int(re.findall(rf"core {number} starts pid=(\d+)", self.process.log())[-1])

    def page(self, name: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._pages}/{name}", timeout=20) as answer:
            return str(answer.read().decode())

    def ready(self) -> bool:
        try:
            return bool(json.loads(self.page("ready"))["ready"])
        except OSError:
            return False


@pytest.fixture
def cores(tmp_path: Path) -> Iterator[Cores]:
    process = BrokerProcess(tmp_path / "broker", data_dir=tmp_path / "data")
    pages = free_port(process, process.host)
    process.arguments = ["--cores", str(CORES), "--metrics", f"{process.host}:{pages}"]
    with process:
        yield Cores(process, pages)


@pytest.fixture
def address(cores: Cores) -> str:
    admin = AdminClient({"bootstrap.servers": cores.process.address})
    for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        made.result(20)
    return cores.process.address


def produced(address: str, values: list[bytes]) -> None:
    """Records on all partitions, acknowledged."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    failed: list[KafkaError] = []
    for number, value in enumerate(values):
        producer.produce(
            TOPIC,
            value,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert not failed


def consumed(address: str, count: int) -> list[bytes]:
    """The committed records, when there are `count`."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"reader-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found: list[bytes] = []
    until = time.monotonic() + 60
    while len(found) < count and time.monotonic() < until:
        found += [message.value() for message in consumer.consume(500, 0.5) if not message.error()]
    consumer.close()
    return found


def test_partitions_are_spread_and_each_core_serves_its_own(address: str) -> None:
    """KIP-98, StripedReplicaPlacer: clients connect to the leader that Metadata names."""
    metadata = AdminClient({"bootstrap.servers": address}).list_topics(TOPIC, timeout=20)
    assert len(metadata.brokers) == CORES
    leaders = Counter(one.leader for one in metadata.topics[TOPIC].partitions.values())
    assert list(leaders.values()) == [PARTITIONS // CORES] * CORES
    values = [b"%d" % number for number in range(600)]
    produced(address, values)
    assert sorted(consumed(address, 600)) == sorted(values)


def test_a_transaction_over_all_cores_counts_whole_or_not_at_all(address: str) -> None:
    """Rows T5, T8: the coordinator sends the markers to the leaders on the other cores."""
    for name, commit in (("kept", True), ("dropped", False), ("kept-too", True)):
        producer = Producer({"bootstrap.servers": address, "transactional.id": name})
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in range(PARTITIONS):
            producer.produce(TOPIC, name.encode(), partition=number)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    found = consumed(address, 2 * PARTITIONS)
    assert Counter(found) == {b"kept": PARTITIONS, b"kept-too": PARTITIONS}


@pytest.mark.parametrize("number", range(CORES))
def test_a_core_that_is_killed_is_back_with_all_it_had(cores: Cores, address: str, number: int) -> None:
    """The controller's core, too: the others serve meanwhile."""
    produced(address, [b"before"] * 60)
    before = cores.pid(number)
    os.kill(before, signal.SIGKILL)
    until(lambda: cores.pid(number) != before and cores.ready())
    produced(address, [b"after"] * 60)
    assert Counter(consumed(address, 120)) == {b"before": 60, b"after": 60}
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("later", 3, 1)])["later"].result(30)


def test_the_cores_end_with_their_supervisor(cores: Cores) -> None:
    pids = [cores.pid(number) for number in range(CORES)]
    cores.process.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_a_stop_ends_all_in_order_and_a_start_has_everything(cores: Cores, address: str) -> None:
    produced(address, [b"kept"] * 60)
    assert cores.process.stop() == 0
    log = cores.process.log()
    assert [log.count(f"core {number}: stopped in order") for number in range(CORES)] == [1] * CORES
    cores.process.start()
    assert consumed(address, 60) == [b"kept"] * 60
    assert "unclean" not in cores.process.log()


def test_one_page_has_the_metrics_of_all_cores(cores: Cores, address: str) -> None:
    pattern = r'kafka_server_replicamanager_leadercount\{core="(\d)"\} (\d+)\.0'
    text = until(lambda: cores.page("metrics"), lambda page: len(re.findall(pattern, page)) == CORES)
    led = re.findall(pattern, text)
    assert [number for number, _ in led] == ["0", "1", "2"]
    assert all(int(count) >= PARTITIONS // CORES for _, count in led)
    assert text.count("# TYPE kafka_server_replicamanager_leadercount gauge") == 1


def test_a_share_group_has_the_lag_of_partitions_on_all_cores(address: str) -> None:
    """GroupCoordinatorService.computeShareGroupLagAndBuildResponse: the leaders are asked for the ends (KIP-1226)."""
    producer = Producer({"bootstrap.servers": address})
    for partition in range(PARTITIONS):
        for _ in range(partition):
            producer.produce(TOPIC, b"x", partition=partition)
    producer.flush(60)
    places = [fencepost.TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    with fencepost.sync.Client(address) as kafka, kafka.admin() as admin:
        admin.alter_share_group_offsets("workers", dict.fromkeys(places, 0))
        found = admin.list_share_group_offsets("workers")
    assert [found[place].lag for place in places] == list(range(PARTITIONS))
