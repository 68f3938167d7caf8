"""Writing, hot and cold reads of a cluster, and takeovers.

    python -m bench.cluster_reads [--gb 1] [--takeovers 5]

Writes requests of 1 MiB (records of 1 KiB) to 8 partitions, five in flight, and reads them over a bare socket: from the
broker that has just written them (hot), then from one that has just taken over (cold), and once more from its cache.
A broker with files and fsync does the same beside it. Then active brokers are killed, or stopped, while a standby
lives: how long until it acknowledges a record, against the lease. PostgreSQL and a directory of objects share the
machine.
"""

import argparse
import signal
import tempfile
import time
from pathlib import Path

import psutil

from bench import memory
from bench.pour import TOPIC, create_topic, pour_in_process
from bench.raw import RawFetcher, RawProducer
from bench.target import cpu_seconds_of
from tests.kit.broker_process import BrokerProcess
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import postgres_or_skip

PARTITIONS, VALUE_BYTES = 8, 1024
LEASE_MS = 3000
SETTINGS = {"cluster.lease.ms": str(LEASE_MS), "cluster.inline.bytes.per.second": str(2 << 20)}
RETRY_S, TAKEOVER_S_MAX = 0.01, 60.0


def measured(what: str, broker: BrokerProcess, size_bytes: int, began: float, cpu_before: float) -> None:
    """Print one row."""
    seconds, cpu = time.monotonic() - began, cpu_seconds_of(psutil.Process(broker.pid)) - cpu_before
    print(
        f"{what:<28} {size_bytes / seconds / 1e6:7.0f} MB/s, {cpu / size_bytes * 1e9:5.2f} s of CPU per GB", flush=True
    )


def write(what: str, broker: BrokerProcess, size_bytes: int) -> None:
    """Write to all partitions from one connection."""
    memory.warm()
    create_topic(broker.address, PARTITIONS)
    pour_in_process(broker.address, PARTITIONS << 20, PARTITIONS, value_bytes=VALUE_BYTES)
    cpu, began = cpu_seconds_of(psutil.Process(broker.pid)), time.monotonic()
    pour_in_process(broker.address, size_bytes, PARTITIONS, value_bytes=VALUE_BYTES)
    measured(what, broker, size_bytes, began, cpu)


def read(what: str, broker: BrokerProcess, size_bytes: int) -> None:
    """Read all partitions from their beginning."""
    fetcher = RawFetcher(broker.address, TOPIC, PARTITIONS)
    cpu, began = cpu_seconds_of(psutil.Process(broker.pid)), time.monotonic()
    while fetcher.size_bytes < size_bytes:
        fetcher.ask()
        fetcher.take()
    measured(what, broker, fetcher.size_bytes, began, cpu)
    fetcher.close()


def takeover(cluster: ClusterProcesses, victim: int, heir: int, number: signal.Signals) -> float:
    """Signal the active broker to end; the seconds until the standby acknowledges a record."""
    standby = cluster.brokers[heir]
    time.sleep(2)  # it follows the metadata
    cluster.brokers[victim].signal(number)
    began, refused = time.monotonic(), None
    while True:
        try:
            producer = RawProducer(standby.address, TOPIC, 100)
            if producer.produce() == 0:
                return time.monotonic() - began
            producer.close()
        except OSError as error:
            refused = error  # it listens anew in its new role
        time.sleep(RETRY_S)
        if time.monotonic() - began > TAKEOVER_S_MAX:
            raise RuntimeError("no record was acknowledged") from refused


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gb", type=float, default=1)
    parser.add_argument("--takeovers", type=int, default=5)
    arguments = parser.parse_args()
    size_bytes = int(arguments.gb * 1e9)
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres_or_skip() as server,
        ClusterProcesses(Path(folder) / "cluster", server) as cluster,
    ):
        files = Path(folder) / "files"
        files.mkdir()
        with BrokerProcess(files, data_dir=files / "data", settings={"durability": "fsync"}) as broker:
            write("files, written", broker, size_bytes)
            read("files, read", broker, size_bytes)
        first = cluster.start(1, **SETTINGS)
        write("cluster, written", first, size_bytes)
        read("cluster, hot", first, size_bytes)
        first.kill()
        time.sleep(LEASE_MS / 1000)
        second = cluster.start(2, **SETTINGS, **{"cluster.cache.max.bytes": str(2 * size_bytes)})
        read("cluster, cold", second, size_bytes)
        read("cluster, from the cache", second, size_bytes)
        active = 2
        for number in (signal.SIGKILL, signal.SIGTERM):
            seconds = []
            for _ in range(arguments.takeovers):
                cluster.start(active + 1, **SETTINGS)
                seconds.append(takeover(cluster, active, active + 1, number))
                active += 1
            shown = ", ".join(f"{one:.2f}" for one in sorted(seconds))
            print(f"takeovers after {number.name}, with a lease of {LEASE_MS / 1000:g} s: {shown} s", flush=True)


if __name__ == "__main__":
    main()
