"""`fencepost spark audit --store`: what it says about sound stores, about each kind of damage, and about changes."""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

pytest.importorskip("psycopg")

from fencepost.broker.cluster.objects.object_store import object_name
from fencepost.broker.log.recovery.snapshots import encode_snapshot
from fencepost.cli.main import cli
from fencepost.spark_pipelines.auditing.findings import Rule
from fencepost.spark_pipelines.auditing.picture import html
from tests.architecture.project_files import ROOT
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import PostgresServer, postgres_or_skip
from tests.kit.stores import WITHOUT_ENGINE
from tests.kit.waiting import until
from tests.spark.store_audits import (
    MERGING,
    NO_MERGING,
    TOPIC,
    audited,
    faults,
    kinds,
    part,
    sql,
    unchanged,
    write,
)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_or_skip() as started:
        yield started


@pytest.fixture(scope="module")
def cluster(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Stores of a broker that has stopped: runs inline and in objects in orders-0, merged rows in merged-0."""
    with ClusterProcesses(tmp_path_factory.mktemp("audited"), server) as processes:
        broker = processes.start(1, **MERGING)
        trio.run(write, broker.address, "merged", 12)
        until(lambda: kinds(processes, "merged-0")[1] >= 1, what="a merged row")
        assert broker.stop() == 0
        broker = processes.start(2, **NO_MERGING)
        trio.run(write, broker.address, TOPIC, 6)
        assert broker.stop() == 0
        yield processes


def command(cluster: ClusterProcesses, *words: str) -> Result:
    where = ["--store", cluster.store, "--objects", f"file://{cluster.objects}", "--local"]
    return CliRunner(env=WITHOUT_ENGINE).invoke(cli, ["spark", "audit", *where, *words])


def test_sound_stores_have_no_fault_and_every_record_is_counted(cluster: ClusterProcesses, tmp_path: Path) -> None:
    report = audited(cluster)
    assert report.sound, faults(report)
    names = {one.topic for one in report.partitions}
    assert {TOPIC, "merged", "__transaction_state"} <= names
    orders, merged = part(report, "orders-0"), part(report, "merged-0")
    assert (orders.committed, orders.aborted, orders.commits, orders.aborts) == (6 + 2 * 4, 2 * 2, 4, 2)
    assert (merged.committed, merged.aborted, merged.commits, merged.aborts) == (6 + 2 * 8, 2 * 4, 8, 4)
    assert "as of 20" in report.source
    assert Rule.ROWS.value in report.rules
    done = command(cluster, TOPIC, "merged", "--html", str(tmp_path / "page.html"))
    assert (done.exit_code, "Exactly once: 36 committed records in 2 partitions" in done.output) == (0, True), (
        done.output
    )
    assert Rule.STORED.value in (tmp_path / "page.html").read_text()


FIRST = "log = LOG(orders-0) AND base = 0"
LARGE = "log = LOG(orders-0) AND object > 0"
SEGMENT = "log = LOG(merged-0) AND kind = 1"
ABORTING = f"{SEGMENT} AND length(aborted) > 0"
MARKER = (
    "log = LOG(orders-0) AND base = (SELECT max(base) FROM fencepost.entry WHERE log = LOG(orders-0)"
    " AND length(heads) > 61 AND count = 1)"
)


@pytest.mark.parametrize(
    ("damage", "rule", "words"),
    [
        (
            f"UPDATE fencepost.entry SET inline = set_byte(inline, 70, get_byte(inline, 70) # 1) WHERE {FIRST}",
            Rule.WHOLE,
            "orders-0: offset 0 in a row in the database: at offset 0: the CRC-32C does not match its bytes",
        ),
        (
            f"UPDATE fencepost.entry SET inline = set_byte(inline, 3, 7) WHERE {FIRST}",
            None,
            "",  # the offset in the bytes does not count: readers get that of the row
        ),
        (
            f"UPDATE fencepost.entry SET inline = set_byte(inline, 16, 1) WHERE {FIRST}",
            Rule.STORED,
            "orders-0: offset 0 in a row in the database: a row in the database at byte 0",
        ),
        (
            f"UPDATE fencepost.entry SET heads = set_byte(heads, 60, get_byte(heads, 60) # 1) WHERE {FIRST}",
            Rule.ROWS,
            "the headers in the row are not those of its batches",
        ),
        (
            f"UPDATE fencepost.entry SET heads = substr(heads, 1, 30) WHERE {FIRST}",
            Rule.ROWS,
            "so the last stable offset and the aborted transactions are unknown",
        ),
        (
            f"UPDATE fencepost.entry SET max_timestamp = max_timestamp + 1 WHERE {FIRST}",
            Rule.ROWS,
            "the row has largest timestamp",
        ),
        (
            f"UPDATE fencepost.entry SET producer_ids = producer_ids || 4711::bigint WHERE {SEGMENT}",
            Rule.ROWS,
            "the row has producer ids",
        ),
        (f"UPDATE fencepost.entry SET batches = batches + 1 WHERE {LARGE}", Rule.STORED, "batches, but the row has"),
        (f"UPDATE fencepost.entry SET count = count + 1 WHERE {FIRST}", Rule.STORED, "the batches end at offset"),
        (f"UPDATE fencepost.entry SET count = count + 1 WHERE {FIRST}", Rule.ROWS, "the row at offset 1 follows one"),
        (
            f"UPDATE fencepost.entry SET size_bytes = size_bytes - 1 WHERE {LARGE}",
            Rule.STORED,
            "incomplete|not whole|bytes",
        ),
        (f"UPDATE fencepost.entry SET position = position + 1 WHERE {LARGE}", Rule.STORED, "but the database names"),
        (f"UPDATE fencepost.entry SET object = 4711 WHERE {LARGE}", Rule.STORED, "the object does not exist"),
        (f"UPDATE fencepost.entry SET object = 4711 WHERE {LARGE}", Rule.KEPT, "the database does not know the object"),
        (f"UPDATE fencepost.entry SET inline = NULL WHERE {FIRST}", Rule.STORED, "neither bytes nor an object"),
        ("DELETE FROM fencepost.entry WHERE log = LOG(orders-0) AND base = 1", Rule.DENSE, "is missing|are missing"),
        (
            "DELETE FROM fencepost.entry WHERE log = LOG(orders-0) AND base = 1",
            Rule.ROWS,
            "the row at offset 2 follows one that ends at 1",
        ),
        ("UPDATE fencepost.head SET next = next + 1 WHERE log = LOG(orders-0)", Rule.ROWS, "its rows end at offset"),
        ("UPDATE fencepost.head SET next = next + 1 WHERE log = LOG(orders-0)", Rule.DENSE, "missing"),
        (
            f"UPDATE fencepost.entry SET aborted = ''::bytea WHERE {ABORTING}",
            Rule.INDEX,
            "are aborted, but not in the list",
        ),
        (
            f"UPDATE fencepost.entry SET aborted = set_byte(aborted, 9, 99) WHERE {ABORTING}",
            Rule.CLOSED,
            "but no marker aborts them",
        ),
        ("UPDATE fencepost.object SET live = live - 1", Rule.KEPT, "but the database counts"),
        ("UPDATE fencepost.object SET state = 2 WHERE live > 0", Rule.KEPT, "the object is marked for deletion"),
        (f"DELETE FROM fencepost.entry WHERE {MARKER}", Rule.CLOSED, "has ended (transactional.id writer of orders"),
        (f"DELETE FROM fencepost.entry WHERE {MARKER}", Rule.DENSE, "missing"),
    ],
)
def test_damage_in_the_database_is_found(cluster: ClusterProcesses, damage: str, rule: Rule | None, words: str) -> None:
    with unchanged(cluster):
        sql(cluster, damage)
        report = audited(cluster, TOPIC, "merged")
    found = [line for line in faults(report) if rule is not None and rule.value in line]
    assert report.sound == (rule is None), faults(report)
    assert rule is None or any(word in line for line in found for word in words.split("|")), faults(report)


def test_a_duplicate_is_found(cluster: ClusterProcesses) -> None:
    """The same batch is committed a second time, as a broker without idempotence would have done."""
    with unchanged(cluster):
        sql(
            cluster,
            "INSERT INTO fencepost.entry SELECT log, (SELECT next FROM fencepost.head WHERE log = LOG(orders-0)),"
            " count, kind, leader_epoch, object, position, size_bytes, max_timestamp, batches, producer_ids, heads,"
            f" aborted, inline FROM fencepost.entry WHERE {FIRST}",
        )
        sql(cluster, "UPDATE fencepost.head SET next = next + 1 WHERE log = LOG(orders-0)")
        report = audited(cluster, TOPIC)
    (fault,) = part(report, "orders-0").faults
    assert (fault.rule, "is here a second time; the first is at offset 0" in fault.what) == (Rule.ONCE.value, True)
    assert "Consumers read these records twice" in fault.meaning


def test_a_wrong_last_stable_offset_is_found(cluster: ClusterProcesses) -> None:
    """The snapshot of the producers holds a transaction that the batches do not have."""
    from fencepost.broker.log.producer_entries import BatchMetadata, ProducerEntry

    stranger = ProducerEntry(4711, 3, -1, 1000, 2, (BatchMetadata(5, 2, 0, 1000),))
    with unchanged(cluster):
        sql(
            cluster,
            "UPDATE fencepost.snapshot SET value = %s WHERE log = LOG(merged-0) AND kind = 'producers'",
            encode_snapshot([stranger]),
        )
        report = audited(cluster, "merged")
    assert any("the broker reports 2, but the batches give" in line for line in faults(report)), faults(report)


@pytest.mark.parametrize(
    ("spoil", "rule", "words"),
    [
        (lambda content: content[:-1], Rule.STORED, "bytes there, but the database names"),
        (
            lambda content: content[:500] + bytes([content[500] ^ 1]) + content[501:],
            Rule.WHOLE,
            "CRC-32C does not match",
        ),
        (lambda content: None, Rule.STORED, "the object does not exist"),
    ],
    ids=["short", "changed", "missing"],
)
def test_damage_of_an_object_is_named_with_what_to_do(
    cluster: ClusterProcesses, spoil: Callable[[bytes], bytes | None], rule: Rule, words: str
) -> None:
    ((object_id, base),) = sql(cluster, f"SELECT object, base FROM fencepost.entry WHERE {LARGE} LIMIT 1")
    (file,) = cluster.objects.glob(f"*/{object_name(object_id)}")
    content = file.read_bytes()
    file.unlink()
    spoilt = spoil(content)
    if spoilt is not None:
        file.write_bytes(spoilt)
    try:
        done, as_json = command(cluster, TOPIC), command(cluster, TOPIC, "--json")
        page = html(audited(cluster, TOPIC))
    finally:
        file.write_bytes(content)
    assert (done.exit_code, as_json.exit_code) == (1, 1)
    text = " ".join(done.output.split())
    assert "NOT exactly once" in text
    assert f"fault at offset {base} in {object_name(object_id)}" in text
    assert words in text
    assert "restore" in text
    (fault,) = json.loads(as_json.stdout)["partitions"][0]["faults"]
    assert (fault["rule"], fault["offset"], fault["place"]) == (rule.value, base, object_name(object_id))
    assert "restore" in fault["meaning"]
    assert fault["meaning"] in page.replace("&#x27;", "'")


def test_the_command_of_the_guide(cluster: ClusterProcesses, tmp_path: Path) -> None:
    section = (ROOT / "docs" / "spark.md").read_text().split("#### Audit a whole cluster")[1]
    written = section.split("```bash\n")[1].split("```")[0]
    for shown, here in (
        ("/tmp/", f"{tmp_path}/"),
        ("postgresql://reader@db/fencepost", f"'{cluster.store}'"),
        ("s3://bucket/prefix", f"file://{cluster.objects}"),
    ):
        written = written.replace(shown, here)
    done = CliRunner(env=WITHOUT_ENGINE).invoke(cli, [*shlex.split(written)[1:], "--local"])
    assert (done.exit_code, "Exactly once" in done.output) == (0, True), done.output
    assert (tmp_path / "audit.html").exists()


def test_wrong_words_are_explained(cluster: ClusterProcesses, tmp_path: Path) -> None:
    base = ["spark", "audit", "--local"]
    where = ["--store", cluster.store, "--objects", f"file://{cluster.objects}"]
    for words, code, text in (
        (["--store", cluster.store], 2, "no object store is named"),
        ([*where, "--data", str(tmp_path)], 2, "not both"),
        ([*where, "nothing"], 1, "there is no topic nothing in PostgreSQL"),
        (["--store", "postgresql://nobody@127.0.0.1:1/none", *where[2:], "--timeout", "0.5"], 1, "PostgreSQL at 127"),
    ):
        done = CliRunner(env=WITHOUT_ENGINE).invoke(cli, [*base, *words])
        assert (done.exit_code, text in done.output) == (code, True), done.output
