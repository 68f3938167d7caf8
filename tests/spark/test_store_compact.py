"""`fencepost spark compact`: Spark computes compactions of a real cluster, and its active broker commits them."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("psycopg")

from fencepost.cli.main import cli
from fencepost.client import Client
from fencepost.spark_pipelines import PipelineError
from fencepost.spark_pipelines.compacting import Outcome, compact
from tests.architecture.project_files import ROOT
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import PostgresServer, postgres_or_skip
from tests.kit.stores import WITHOUT_ENGINE
from tests.kit.waiting import until
from tests.spark.source_world import Topic, World
from tests.spark.store_audits import COMPACTED, TOPIC, audited, faults, kinds, part, settings, sql

pytestmark = pytest.mark.timeout(600)

ROUNDS = {
    "cluster.merge.interval.ms": "50",
    "cluster.merge.min.rows": "4",
    "cluster.inline.max.bytes": "300",
    "cluster.linger.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "cluster.gc.interval.ms": "100",
}
PROPOSALS_ONLY = {**ROUNDS, "log.cleaner.enable": "false"}
SECONDS = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_or_skip() as started:
        yield started


@pytest.fixture
def cluster(server: PostgresServer, tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, server) as processes:
        yield processes


async def write(address: str, count: int, partitions: int = 2, policy: str = "compact") -> None:
    """Transactions over all partitions with few keys; each fourth is aborted."""
    async with Client(address) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics(
                TOPIC, partitions, configs={**COMPACTED, "cleanup.policy": policy}, if_not_exists=True
            )
        async with kafka.transactional_producer("keyed") as producer:
            for number in range(count):
                try:
                    async with producer.transaction() as txn:
                        for partition in range(partitions):
                            for size_bytes in (10, 500):
                                value = b"%d " % number + bytes(size_bytes)
                                await txn.send(TOPIC, value, key=b"%d" % (number % 3), partition=partition)
                        await producer.flush()
                        if number % 4 == 1:
                            raise LookupError
                except LookupError:
                    continue


def table(address: str) -> dict[tuple[int, bytes], bytes]:
    """The newest committed value of each key, by partition and key, as the broker sends it."""
    rows = Topic(World(address), TOPIC).rows()
    newest = {(row["partition"], row["key"]): row for row in sorted(rows, key=lambda row: row["offset"])}
    return {key: row["value"].split(b" ")[0] for key, row in newest.items()}


def merged(cluster: ClusterProcesses, count: int) -> None:
    """Wait until all but a few rows are merged, and nothing changes any more."""
    until(lambda: all(kinds(cluster, f"{TOPIC}-{number}")[1] > 0 for number in range(count)), what="merged rows")
    seen: list[Any] = []

    def settled() -> bool:
        seen.append(sql(cluster, "SELECT log, base, kind FROM fencepost.entry ORDER BY 1, 2"))
        return len(seen) > 5 and seen[-1] == seen[-5]

    until(settled, what="the end of merging")


def command(cluster: ClusterProcesses, *words: str) -> Result:
    where = ["--store", cluster.store, "--objects", f"file://{cluster.objects}"]
    return CliRunner(env=WITHOUT_ENGINE).invoke(cli, ["spark", "compact", TOPIC, *where, *words])


@pytest.mark.spark
def test_spark_compacts_and_the_broker_commits(cluster: ClusterProcesses, spark: Any) -> None:
    """Readers get the same table from fewer records, the audit finds no fault, and the next broker has all of it."""
    broker = cluster.start(1, **PROPOSALS_ONLY)
    trio.run(write, broker.address, 40)
    merged(cluster, 2)
    before = table(broker.address)
    rows = sql(cluster, "SELECT sum(size_bytes) FROM fencepost.head WHERE name LIKE 'orders%%'")
    steps: list[tuple[int, int]] = []
    found = compact(
        [TOPIC],
        settings(cluster),
        spark=spark,
        newest=True,
        wait_seconds=SECONDS,
        advance=lambda done, total: steps.append((done, total)),
    )
    assert [one.outcome for one in found] == [Outcome.COMMITTED] * 2, found
    assert all(one.records_kept < one.records_read / 2 for one in found)
    assert steps[-1] == (2, 2)
    assert sql(cluster, "SELECT sum(size_bytes) FROM fencepost.head WHERE name LIKE 'orders%%'") < rows
    assert table(broker.address) == before
    trio.run(write, broker.address, 8)
    report = audited(cluster)
    assert report.sound, faults(report)
    assert "compaction removed whole batches" in {hole.why for hole in part(report, "orders-0").holes}
    after = table(broker.address)
    assert broker.stop() == 0
    second = cluster.start(2, **ROUNDS)
    assert table(second.address) == after
    assert second.stop() == 0


def test_a_stale_proposal_is_refused_and_nothing_changes(cluster: ClusterProcesses, tmp_path: Path) -> None:
    """The broker's own compaction was quicker: the proposal is dropped, with one line, and its objects are deleted."""
    broker = cluster.start(1, **{**ROUNDS, "log.cleaner.enable": "false", "log.cleaner.backoff.ms": "3600000"})
    trio.run(write, broker.address, 40, 1)
    merged(cluster, 1)
    before = table(broker.address)
    file = tmp_path / "broker.properties"
    file.write_text("cluster.inline.max.bytes=300\n")
    waiting = command(cluster, "--local", "--wait", "0", "--newest", "--json", "--config", str(file))
    (answer,) = json.loads(waiting.stdout)
    assert (waiting.exit_code, answer["outcome"]) == (1, "waiting")
    assert "no broker has answered proposal 1 yet" in answer["why"]
    ((objects,),) = sql(cluster, "SELECT array_agg(id) FROM fencepost.object WHERE state = 0")
    proposed = {path for path in cluster.files() if int(path.name) in objects}
    assert proposed
    assert broker.stop() == 0
    # Rows that the proposal has read are merged, compacted and merged again.
    sql(cluster, "UPDATE fencepost.proposal SET answer = 'later' WHERE id = 1")
    second = cluster.start(2, **ROUNDS)
    assert table(second.address) == before  # and so the log is opened, which it would be later otherwise
    cleaned = "SELECT base FROM fencepost.snapshot WHERE kind = 'cleaned' AND log = LOG(orders-0)"
    until(lambda: sql(cluster, cleaned), what="the broker's own compaction")
    sql(cluster, "UPDATE fencepost.proposal SET answer = NULL WHERE id = 1")
    until(lambda: cluster.engine.answer_to(1) is not None, what="the answer")
    assert "the rows have changed since" in (cluster.engine.answer_to(1) or "")
    assert table(second.address) == before
    assert second.stop() == 0
    sql(cluster, "UPDATE fencepost.object SET claimed_at = claimed_at - interval '1 day' WHERE state = 0")
    third = cluster.start(3, **PROPOSALS_ONLY)
    until(lambda: not any(path.exists() for path in proposed), what="the objects of the proposal to be deleted")
    report = audited(cluster, TOPIC)
    assert report.sound, faults(report)
    assert third.stop() == 0


def test_the_command_of_the_guide(cluster: ClusterProcesses) -> None:
    broker = cluster.start(1, **PROPOSALS_ONLY)
    trio.run(write, broker.address, 40, 1)
    merged(cluster, 1)
    section = (ROOT / "docs" / "spark.md").read_text().split("### Compact topics of a cluster")[1]
    written = section.split("```bash\n")[1].split("```")[0]
    for shown, here in (
        ("postgresql://spark@db/fencepost", f"'{cluster.store}'"),
        ("s3://bucket/prefix", f"file://{cluster.objects}"),
        ("prices", TOPIC),
    ):
        written = written.replace(shown, here)
    done = CliRunner(env=WITHOUT_ENGINE).invoke(cli, [*shlex.split(written)[1:], "--local", "--newest"])
    assert (done.exit_code, "committed" in done.output) == (0, True), done.output
    again = command(cluster, "--local", "--newest")
    assert (again.exit_code, "nothing to compact" in again.output) == (0, True), again.output


def test_what_cannot_be_compacted_is_said(cluster: ClusterProcesses) -> None:
    broker = cluster.start(1, **PROPOSALS_ONLY)
    trio.run(write, broker.address, 3, 1, "delete")
    with pytest.raises(PipelineError, match="there is no topic nothing in PostgreSQL"):
        compact(["nothing"], settings(cluster))
    done = command(cluster, "--local")
    assert (done.exit_code, "topic orders is not compacted" in done.output) == (1, True), done.output
    assert broker.stop() == 0
