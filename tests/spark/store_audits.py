"""Stores of a cluster for tests of `fencepost spark audit --store`: what is written, and how they are audited."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.client import Client
from fencepost.spark_connector.source.store_settings import StoreSettings
from fencepost.spark_pipelines import audit
from fencepost.spark_pipelines.auditing.findings import AuditReport, PartitionReport
from tests.kit.cluster_processes import ClusterProcesses

TOPIC = "orders"
NO_MERGING = {"cluster.merge.interval.ms": "3600000", "cluster.gc.interval.ms": "3600000"}
MERGING = {
    "cluster.merge.interval.ms": "50",
    "cluster.merge.min.rows": "4",
    "cluster.gc.interval.ms": "200",
    "cluster.inline.max.bytes": "300",
    "cluster.linger.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "200",
}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


async def write(address: str, topic: str, transactions: int) -> None:
    """Plain records, small and large, and transactions of which each third is aborted."""
    async with Client(address) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics(topic, if_not_exists=True)
        async with kafka.producer() as producer:
            for number in range(5):
                await producer.send(topic, b"small %d" % number, partition=0)
            await producer.send(topic, b"large" * 20_000, partition=0)
        async with kafka.transactional_producer(f"writer of {topic}") as producer:
            for number in range(transactions):
                try:
                    async with producer.transaction() as txn:
                        for _ in range(2):
                            await txn.send(
                                topic, b"in a transaction" * (number + 1), key=b"%d" % (number % 4), partition=0
                            )
                        await producer.flush()
                        if number % 3 == 1:
                            raise LookupError
                except LookupError:
                    continue


def sql(cluster: ClusterProcesses, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Run a statement, in which LOG(name) is the id of a partition's log."""
    import psycopg

    for name in ("orders-0", "merged-0"):
        log = f"(SELECT log FROM fencepost.head WHERE name = '{name}')"
        statement = statement.replace(f"LOG({name})", log)
    with psycopg.connect(cluster.store, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), parameters)
        return cursor.fetchall() if cursor.description is not None else []


def kinds(cluster: ClusterProcesses, name: str) -> tuple[int, int]:
    """How many runs and segments a log has."""
    found = dict(
        sql(
            cluster,
            "SELECT kind, count(*) FROM fencepost.entry JOIN fencepost.head USING (log) WHERE name = %s GROUP BY 1",
            name,
        )
    )
    return found.get(0, 0), found.get(1, 0)


def settings(cluster: ClusterProcesses) -> StoreSettings:
    return StoreSettings(cluster.store, f"file://{cluster.objects}", 5000)


def audited(cluster: ClusterProcesses, *topics: str, **more: Any) -> AuditReport:
    return audit(topics, stores=settings(cluster), **more)


def part(report: AuditReport, name: str) -> PartitionReport:
    (found,) = [one for one in report.partitions if one.name == name]
    return found


def faults(report: AuditReport) -> list[str]:
    return [f"{one.name}: {fault}" for one in report.partitions for fault in one.faults]


@contextmanager
def unchanged(cluster: ClusterProcesses) -> Iterator[None]:
    """All rows of the tables are afterwards as before."""
    tables = ("entry", "head", "object", "snapshot")
    for table in tables:
        sql(cluster, f"CREATE TABLE IF NOT EXISTS kept_{table} AS SELECT * FROM fencepost.{table}")
    try:
        yield
    finally:
        for table in tables:
            sql(cluster, f"DELETE FROM fencepost.{table}")
            sql(cluster, f"INSERT INTO fencepost.{table} OVERRIDING SYSTEM VALUE SELECT * FROM kept_{table}")
            sql(cluster, f"DROP TABLE kept_{table}")
