"""Three brokers that all lead, beside three of which one is active.

    python -m bench.cluster_brokers [--scale 1]

Over one PostgreSQL and one directory of objects on this machine, in turn with `cluster.active.brokers` one and all:
the end of a transaction over 12 partitions (4 for each broker), what three producers write in sum, how many commits
meet rows of another broker in a mix of both, and, with all, what clients notice when one broker is killed. All clients
are librdkafka. The CPU is that of the brokers.
"""

import argparse
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.target import cpu_seconds_of
from fencepost.broker.cluster.engine import log_id, slot_of
from fencepost.broker.cluster.ownership import spread
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import PostgresServer, postgres_or_skip
from tests.kit.waiting import until
from tests.kit.wire import Wire

BROKERS, PARTITIONS = (1, 2, 3), 12
LEASE_MS = 3000
SETTINGS = {"cluster.lease.ms": str(LEASE_MS), "cluster.inline.bytes.per.second": str(2 << 20)}
VALUE = bytes(1000)
WAIT_S = 60.0
QUIET_S, FAILED_S = 10.0, 15.0


class Brokers(ClusterProcesses):
    """Three, with the topic `t`."""

    def begin(self, active: str) -> None:
        """Return when they lead what they should."""
        for number in BROKERS:
            metered = {"metrics.listen": "127.0.0.1:0", "cluster.active.brokers": active}
            self.start(number, **SETTINGS, **metered)
        if active == "all":
            until(lambda: tuple(slot.broker for slot in self.engine.slots()) == spread(frozenset(BROKERS)))
        self.topic = self._make_even()

    def _make_even(self) -> str:
        """A topic whose partitions are evenly spread over three brokers: topic ids are random."""
        admin, owners = AdminClient({"bootstrap.servers": self.bootstrap}), spread(frozenset(BROKERS))
        for number in range(1000):
            name = f"t{number}"
            for made in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
                made.result(WAIT_S)
            with Wire(self.brokers[1].connect()) as wire:
                (topic,) = wire.call(3, 12, MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics
            leaders = [owners[slot_of(log_id(topic.topic_id, partition))] for partition in range(PARTITIONS)]
            if all(leaders.count(broker) == PARTITIONS // len(BROKERS) for broker in BROKERS):
                self.leaders = leaders
                return name
        raise RuntimeError("no topic is evenly spread")

    def cpu(self) -> float:
        """Seconds of all brokers so far."""
        return sum(cpu_seconds_of(psutil.Process(broker.pid)) for broker in self.brokers.values() if broker.running)

    def metric(self, name: str) -> float:
        """The sum of a metric over all brokers."""
        found = 0.0
        for broker in self.brokers.values():
            with urllib.request.urlopen(f"http://{broker.facts['metrics']}/metrics", timeout=10) as response:
                lines = response.read().decode().splitlines()
            found += sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))
        return found


def ends_of_transactions(cluster: Brokers, count: int) -> list[float]:
    """The seconds of each EndTxn: all records are acknowledged before."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "ends", "linger.ms": 0})
    producer.init_transactions(WAIT_S)
    found = []
    for _ in range(count + 5):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(cluster.topic, b"x", partition=partition)
        producer.flush(WAIT_S)
        began = time.monotonic()
        producer.commit_transaction(WAIT_S)
        found.append(time.monotonic() - began)
    return found[5:]


def written(cluster: Brokers, seconds: float) -> tuple[float, float]:
    """MB/s in sum of three producers, and the brokers' CPU in seconds for each GB."""
    totals = [0] * len(BROKERS)
    stop = threading.Event()

    def pour(number: int) -> None:
        def told(error: KafkaError | None, _: Message) -> None:
            totals[number] += 0 if error is not None else len(VALUE)

        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, "batch.size": 1 << 20})
        sent = 0
        while not stop.is_set():
            try:
                producer.produce(cluster.topic, VALUE, partition=sent % PARTITIONS, on_delivery=told)
                sent += 1
            except BufferError:
                producer.poll(0.01)
        producer.flush(WAIT_S)

    threads = [threading.Thread(target=pour, args=(number,)) for number in range(len(BROKERS))]
    for thread in threads:
        thread.start()
    time.sleep(2)  # they are connected, and the brokers warm
    cpu, before, began = cluster.cpu(), sum(totals), time.monotonic()
    time.sleep(seconds)
    size, took, used = sum(totals) - before, time.monotonic() - began, cluster.cpu() - cpu
    stop.set()
    for thread in threads:
        thread.join()
    return size / took / 1e6, used / size * 1e9


@contextmanager
def steady_load(cluster: Brokers) -> Iterator[list[tuple[float, int, float]]]:
    """One record to each partition, every 50 ms: (when it was sent, partition, seconds until its acknowledgement)."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "reconnect.backoff.ms": 20})
    found: list[tuple[float, int, float]] = []
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            for partition in range(PARTITIONS):
                began = time.monotonic()

                def told(error: KafkaError | None, message: Message, began: float = began) -> None:
                    partition = message.partition()
                    assert error is None, error
                    assert partition is not None
                    found.append((began, partition, time.monotonic() - began))

                producer.produce(cluster.topic, b"x", partition=partition, on_delivery=told)
            producer.poll(0.05)
        producer.flush(WAIT_S)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def conflicts(cluster: Brokers, seconds: float) -> str:
    """In a mix: plain records to all partitions, and transactions over all."""
    before = cluster.metric("fencepost_cluster_conflicts_total"), cluster.commits()
    with steady_load(cluster):
        until_then = time.monotonic() + seconds
        while time.monotonic() < until_then:
            ends_of_transactions(cluster, 20)
    refused = cluster.metric("fencepost_cluster_conflicts_total") - before[0]
    commits = cluster.commits() - before[1]
    return f"{refused:.0f} of {commits} commits ({refused / commits:.1%})"


def failover(cluster: Brokers) -> str:
    """Broker 2 is killed: its partitions, and those of the others."""
    with steady_load(cluster) as found:
        time.sleep(QUIET_S)
        killed = time.monotonic()
        cluster.brokers[2].kill()
        time.sleep(FAILED_S)
    gone = max(took for began, partition, took in found if cluster.leaders[partition] == 2 and began > killed - 1)
    others = [(began, took) for began, partition, took in found if cluster.leaders[partition] != 2]
    quiet = percentile([took for began, took in others if began < killed - 1], 99)
    during = percentile([took for began, took in others if killed - 1 <= began < killed + LEASE_MS / 1000 + 2], 99)
    return (
        f"its partitions answered again after {gone:.2f} s (lease {LEASE_MS / 1000:g} s); p99 at the others' "
        f"{during * 1000:.1f} ms, {quiet * 1000:.1f} before: {during / quiet:.2f}x"
    )


def percentile(values: Sequence[float], percent: int) -> float:
    """Of at least two values."""
    return statistics.quantiles(values, n=100)[percent - 1]


def measure(server: PostgresServer, folder: Path, active: str, scale: float) -> None:
    """Print the rows of one of the two clusters."""
    with Brokers(folder, server) as cluster:
        cluster.begin(active)
        took = ends_of_transactions(cluster, int(200 * scale))
        shown = f"p50 {statistics.median(took) * 1000:.1f} ms, p99 {percentile(took, 99) * 1000:.1f} ms"
        print(f"{active:<4} EndTxn over {PARTITIONS} partitions: {shown}", flush=True)
        speed, cpu = written(cluster, 15 * scale)
        print(f"{active:<4} written by three producers: {speed:.1f} MB/s, {cpu:.2f} s of CPU per GB", flush=True)
        print(f"{active:<4} refused in a mix: {conflicts(cluster, 15 * scale)}", flush=True)
        if active == "all":
            print(f"{active:<4} broker killed: {failover(cluster)}", flush=True)


def main() -> None:
    """Measure both, twice in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1, help="shorter or longer rows; default: 1")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, postgres_or_skip() as server:
        for number in range(arguments.rounds):
            for active in ("one", "all"):
                measure(server, Path(folder) / f"{active}-{number}", active, arguments.scale)


if __name__ == "__main__":
    main()
