"""What a cluster's stores hold after many commits, before and after their rows were merged.

    python -m bench.cluster_growth [--gib 1] [--partitions 1000] [--batch-bytes 4096]

Writes requests that contain a batch for every partition, so each becomes one commit with a row for every partition.
Then it prints rows, objects, the size of the database's tables, how long the next broker took to start after a kill -9,
its memory, and the time of a fetch at offset 0 of some partitions. Then a broker merges, and it prints them again.
PostgreSQL and a directory of objects share the machine with the broker.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import psycopg

from bench.pour import PRODUCE_VERSION, TOPIC, Pipe, create_topic, framed
from bench.recovery import FETCH_VERSION
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.record_batch import build_batch
from tests.kit.cluster_processes import ClusterBrokerProcess, ClusterProcesses
from tests.kit.postgres_server import postgres_or_skip

RECORD_BYTES = 1000
FETCHED = 50
WAITS_MS = 10_000
SETTLED_S = 60
NEVER_MS = 2**31 - 1
QUIET = {
    "cluster.linger.ms": "0",
    "cluster.merge.interval.ms": str(NEVER_MS),
    "cluster.gc.interval.ms": str(NEVER_MS),
}
MERGING = {
    "cluster.merge.interval.ms": "1000",
    "cluster.gc.interval.ms": "2000",
    "log.retention.check.interval.ms": "1000",  # housekeeping opens the logs
}


def write(address: str, partitions: int, batch_bytes: int, total_bytes: int) -> float:
    """Write, one request after the other; MiB per second."""
    records = [(int(time.time() * 1000), None, bytes(RECORD_BYTES), ())] * max(1, batch_bytes // RECORD_BYTES)
    batch = bytes(build_batch(records))
    data = [PartitionProduceData(index=partition, records=batch) for partition in range(partitions)]
    topic = TopicProduceData(name=TOPIC, partition_data=data)
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=60_000, topic_data=[topic])
    frame = framed(ApiKey.PRODUCE, PRODUCE_VERSION, request)
    pipe, began, written = Pipe(address), time.monotonic(), 0
    while written < total_bytes:
        pipe.socket.sendall(frame)
        answer = pipe.answer(ApiKey.PRODUCE, PRODUCE_VERSION)
        codes = {one.error_code for one in answer.responses[0].partition_responses}  # type: ignore[attr-defined]
        assert codes == {0}, codes
        written += len(batch) * partitions
    return written / (1 << 20) / (time.monotonic() - began)


def fetches(address: str, partitions: int) -> list[float]:
    """Milliseconds until the first records of some partitions came, which nobody has read since the start."""
    pipe, found = Pipe(address), []
    for partition in range(0, partitions, max(1, partitions // FETCHED)):
        wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic=TOPIC, partitions=[wanted])]
        request = FetchRequest(max_wait_ms=WAITS_MS, min_bytes=1, max_bytes=1 << 20, isolation_level=0, topics=topics)
        began = time.monotonic()
        pipe.send(ApiKey.FETCH, FETCH_VERSION, request)
        answer = pipe.answer(ApiKey.FETCH, FETCH_VERSION).responses[0].partitions[0]  # type: ignore[attr-defined]
        found.append(1000 * (time.monotonic() - began))
        assert answer.records, answer
    return found


def resident_mib(broker: ClusterBrokerProcess) -> float:
    """Memory of the process."""
    status = Path(f"/proc/{broker.pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def tables_mib(cluster: ClusterProcesses) -> float:
    """The size of all tables of the schema."""
    with psycopg.connect(cluster.store) as connection:
        row = connection.execute(
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE nspname = 'fencepost' AND relkind = 'r'"
        ).fetchone()
    assert row is not None
    return float(row[0]) / (1 << 20)


def report(cluster: ClusterProcesses, when: str, node_id: int, partitions: int, settings: dict[str, str]) -> None:
    """Kill all brokers, start one after the lease, and print what it costs."""
    for broker in cluster.brokers.values():
        if broker.running:
            broker.kill()
    time.sleep(2 * cluster.LEASE_MS / 1000)
    began = time.monotonic()
    broker = cluster.start(node_id, **settings)
    seconds = time.monotonic() - began
    memory = resident_mib(broker)
    times = fetches(broker.address, partitions)
    print(
        f"{when}: {sum(cluster.rows().values())} rows, {len(cluster.files())} objects,"
        f" tables {tables_mib(cluster):.0f} MiB; start {seconds:.1f} s, memory {memory:.0f} MiB;"
        f" fetch at offset 0 p50 {statistics.median(times):.1f} ms,"
        f" max {max(times):.1f} ms",
        flush=True,
    )


def merged(cluster: ClusterProcesses) -> None:
    """Return when rows and objects have stayed the same for `SETTLED_S` after they had changed."""
    first = before = sum(cluster.rows().values()), len(cluster.files())
    since = time.monotonic()
    while before == first or time.monotonic() - since < SETTLED_S:
        time.sleep(1)
        now = sum(cluster.rows().values()), len(cluster.files())
        if now != before:
            before, since = now, time.monotonic()


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--batch-bytes", type=int, default=4096)
    arguments = parser.parse_args()
    partitions = arguments.partitions
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres_or_skip() as server,
        ClusterProcesses(Path(folder), server) as cluster,
    ):
        first = cluster.start(1, **QUIET)
        create_topic(first.address, partitions)
        rate = write(first.address, partitions, arguments.batch_bytes, int(arguments.gib * (1 << 30)))
        print(f"{arguments.gib:g} GiB to {partitions} partitions at {rate:.0f} MiB/s", flush=True)
        report(cluster, "before merging", 2, partitions, QUIET)
        cluster.brokers[2].kill()
        cluster.start(3, **MERGING)
        began = time.monotonic()
        merged(cluster)
        print(f"merged within {time.monotonic() - began - SETTLED_S:.0f} s", flush=True)
        report(cluster, "after merging", 4, partitions, QUIET)


if __name__ == "__main__":
    main()
