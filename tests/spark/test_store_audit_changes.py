"""`fencepost spark audit --store` while brokers write, merge, compact and delete: none of it is a fault."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

pytest.importorskip("psycopg")

from fencepost.client import Client
from fencepost.spark_pipelines.auditing import store_scan, stores
from fencepost.spark_pipelines.auditing.findings import AuditReport
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import PostgresServer, postgres_or_skip
from tests.kit.waiting import until
from tests.spark.store_audits import (
    COMPACTED,
    MERGING,
    NO_MERGING,
    TOPIC,
    audited,
    faults,
    kinds,
    part,
    settings,
    sql,
    unchanged,
    write,
)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_or_skip() as started:
        yield started


@pytest.mark.parametrize("task_bytes", [1, 1 << 20])
async def test_rows_that_are_merged_while_the_audit_reads_are_found_again(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task_bytes: int
) -> None:
    """The rows of the cut are replaced and their objects deleted before a task reads them."""
    with ClusterProcesses(tmp_path, server) as cluster:
        first = cluster.start(1, **NO_MERGING)
        await write(first.address, TOPIC, 12)
        assert first.stop() == 0
        monkeypatch.setattr(stores, "PIECE_BYTES", task_bytes)
        before, planned = kinds(cluster, "orders-0"), stores.plan_stores(settings(cluster), [TOPIC])
        old = cluster.files()
        second = cluster.start(2, **MERGING)
        await trio.to_thread.run_sync(until, lambda: not old & cluster.files())
        assert kinds(cluster, "orders-0")[0] < before[0], "rows were merged"
        report = _executed(planned)
        assert report.sound, faults(report)
        found = part(report, "orders-0")
        assert (found.committed, found.aborted, found.holes, found.notes) == (6 + 2 * 8, 2 * 4, [], [])
        # What a newer row has is compared with the row of the cut.
        planned.plan.pieces[0] = planned.plan.pieces[0]._replace(
            rows=tuple(row._replace(max_timestamp_ms=1) for row in planned.plan.pieces[0].rows)
        )
        assert any("the row has largest timestamp 1" in line for line in faults(_executed(planned)))
        assert second.stop() == 0


def _executed(planned: stores.StorePlan) -> AuditReport:
    from fencepost.spark_pipelines.auditing import run

    report = run._execute(planned.plan, None, lambda done, total: None)
    planned.complete(report.partitions)
    return report


async def test_records_that_are_deleted_while_the_audit_reads_are_no_fault(
    server: PostgresServer, tmp_path: Path
) -> None:
    with ClusterProcesses(tmp_path, server) as cluster:
        broker = cluster.start(1, **{**NO_MERGING, "log.retention.check.interval.ms": "200"})
        await write(broker.address, TOPIC, 6)
        planned = stores.plan_stores(settings(cluster), [TOPIC])
        cut_at = planned.rows[next(iter(planned.rows))][8].base
        async with Client(broker.address) as kafka, kafka.admin() as admin:
            await admin.delete_records({(TOPIC, 0): cut_at})

            def deleted() -> bool:
                return sql(cluster, "SELECT min(base) FROM fencepost.entry WHERE log = LOG(orders-0)")[0][0] == cut_at

            await trio.to_thread.run_sync(until, deleted)
            report = _executed(planned)
            assert report.sound, faults(report)
            holes = part(report, "orders-0").holes  # the object of a deleted row may still be there
            assert {hole.why for hole in holes} == {store_scan.DELETED}
            assert (holes[0].first, holes[-1].last) == (0, cut_at - 1)
            await admin.delete_topics(TOPIC)
            await trio.to_thread.run_sync(
                until, lambda: all(head.name != "orders-0" for head in cluster.engine.heads())
            )
            report = _executed(planned)
            assert report.sound, faults(report)
            assert {hole.why for hole in part(report, "orders-0").holes} == {store_scan.DELETED}


async def test_a_log_that_is_compacted_while_the_audit_reads_is_no_fault(
    server: PostgresServer, tmp_path: Path
) -> None:
    """And afterwards compaction explains the holes; a row that is missing in them is a fault."""
    with ClusterProcesses(tmp_path, server) as cluster:
        broker = cluster.start(1, **NO_MERGING, **{"log.cleaner.backoff.ms": "3600000"})
        async with Client(broker.address) as kafka, kafka.admin() as admin:
            await admin.create_topics(TOPIC, configs=COMPACTED)
        await write_keyed(broker.address, 40)
        planned = stores.plan_stores(settings(cluster), [TOPIC])
        assert not part(_executed(planned), "orders-0").holes
        assert broker.stop() == 0
        old = cluster.files()
        second = cluster.start(2, **MERGING)
        await write_keyed(second.address, 8)
        await trio.to_thread.run_sync(until, lambda: compacted(cluster) and not old & cluster.files())
        report = _executed(planned)
        assert report.sound, faults(report)
        assert store_scan.COMPACTED in {hole.why for hole in part(report, "orders-0").holes}
        assert second.stop() == 0  # or it may compact once more while the audit reads
        report = audited(cluster)
        assert report.sound, faults(report)
        assert "compaction removed whole batches" in {hole.why for hole in part(report, "orders-0").holes}
        with unchanged(cluster):
            sql(cluster, "DELETE FROM fencepost.snapshot WHERE kind = 'cleaned'")
            assert audited(cluster, TOPIC).sound, "the topic is compacted: a broker may have died before it noted it"
            sql(
                cluster,
                "UPDATE fencepost.entry SET base = base + 1, count = count - 1 WHERE log = LOG(orders-0)"
                " AND kind = 1 AND base = (SELECT min(base) FROM fencepost.entry WHERE log = LOG(orders-0))",
            )
            assert any("its first row begins at offset 1" in line for line in faults(audited(cluster, TOPIC)))


async def write_keyed(address: str, transactions: int) -> None:
    async with Client(address) as kafka, kafka.transactional_producer("keyed") as producer:
        for number in range(transactions):
            try:
                async with producer.transaction() as txn:
                    for size_bytes in (10, 500):
                        await txn.send(TOPIC, bytes(size_bytes), key=b"%d" % (number % 3), partition=0)
                    await producer.flush()
                    if number % 4 == 1:
                        raise LookupError
            except LookupError:
                continue


def compacted(cluster: ClusterProcesses) -> bool:
    found = sql(cluster, "SELECT base FROM fencepost.snapshot WHERE log = LOG(orders-0) AND kind = 'cleaned'")
    return bool(found) and found[0][0] > 40


@pytest.mark.spark
def test_spark_audits_a_running_cluster_again_and_again(server: PostgresServer, tmp_path: Path, spark: Any) -> None:
    """Producers write, rows are merged, compacted and deleted; no audit finds a fault, and each sees one instant."""
    with ClusterProcesses(tmp_path, server) as cluster:
        broker = cluster.start(1, **MERGING)
        stop, advanced = threading.Event(), list[tuple[int, int]]()

        async def write_on() -> None:
            async with Client(broker.address) as kafka:
                async with kafka.admin() as admin:
                    await admin.create_topics(TOPIC, partitions=2)
                    await admin.create_topics("keyed", configs=COMPACTED)
                async with kafka.transactional_producer("both") as producer:
                    number = 0
                    while not stop.is_set():
                        number += 1
                        try:
                            async with producer.transaction() as txn:
                                for partition in (0, 1):
                                    await txn.send(TOPIC, bytes(number % 5 * 1000), partition=partition)
                                await txn.send("keyed", bytes(100), key=b"%d" % (number % 3))
                                await producer.flush()
                                if number % 4 == 0:
                                    raise LookupError
                        except LookupError:
                            continue

        writing = threading.Thread(target=trio.run, args=(write_on,))
        writing.start()
        try:
            until(lambda: kinds(cluster, "orders-1")[1] > 0, what="merged rows")
            reports = [
                audited(cluster, spark=spark, advance=lambda done, total: advanced.append((done, total)))
                for _ in range(2)
            ]
            reports += [audited(cluster) for _ in range(6)]
        finally:
            stop.set()
            writing.join(100)
        for report in reports:
            assert report.sound, faults(report)
            first, second = part(report, "orders-0"), part(report, "orders-1")
            assert (first.committed, first.commits, first.aborts) == (second.committed, second.commits, second.aborts)
        assert reports[-1].total("committed") > reports[0].total("committed")
        assert advanced
        assert broker.stop() == 0
        here = audited(cluster)
        by_spark = audited(cluster, spark=spark)
        assert by_spark.partitions == here.partitions
