"""`fencepost verify --store`: what it says about healthy stores, and about each kind of damage."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crc32c
import pytest
import trio
from click.testing import CliRunner, Result

from fencepost.broker.cluster.objects.object_store import object_name
from fencepost.broker.log.producer_entries import BatchMetadata, ProducerEntry
from fencepost.broker.log.recovery.snapshots import encode_snapshot
from fencepost.cli.main import cli
from fencepost.client import Client
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import PostgresServer
from tests.kit.store_commands import run
from tests.kit.waiting import until

TOPIC = "orders"


@pytest.fixture(scope="module")
def cluster(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Records inline and in objects, committed and aborted, of a broker that has stopped."""
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), server) as processes:
        broker = processes.start(1)
        trio.run(write, broker.address)
        assert broker.stop() == 0
        yield processes


async def write(address: str) -> None:
    async with Client(address) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics(TOPIC, partitions=2)
        async with kafka.producer() as producer:
            for number in range(5):
                await producer.send(TOPIC, b"small %d" % number, partition=0)
            await producer.send(TOPIC, b"large" * 20_000, partition=0)
            await producer.send(TOPIC, b"also large" * 20_000, partition=1)
        async with kafka.transactional_producer("writer") as producer:
            for fails in (False, True, False):
                try:
                    async with producer.transaction() as txn:
                        await txn.send(TOPIC, b"in a transaction", partition=0)
                        assert not fails
                except AssertionError:
                    pass


def stores(cluster: ClusterProcesses) -> list[str]:
    return ["--store", cluster.store, "--objects", f"file://{cluster.objects}"]


def verify(cluster: ClusterProcesses, *words: str) -> Result:
    return CliRunner().invoke(cli, ["verify", *stores(cluster), *words])


def sql(cluster: ClusterProcesses, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Run a statement, in which `THE_LOG` is the id of `orders-0`."""
    import psycopg

    log = "(SELECT log FROM fencepost.head WHERE name = 'orders-0')"
    with psycopg.connect(cluster.store, autocommit=True) as connection:
        cursor = connection.execute(statement.replace("THE_LOG", log).encode(), parameters)
        return cursor.fetchall() if cursor.description is not None else []


def object_file(cluster: ClusterProcesses) -> Path:
    """The file of the large record of orders-0."""
    ((object_id,),) = sql(cluster, "SELECT object FROM fencepost.entry WHERE log = THE_LOG AND object > 0 LIMIT 1")
    (found,) = cluster.objects.glob(f"*/{object_name(object_id)}")
    return found


def test_healthy_stores_have_no_finding(cluster: ClusterProcesses) -> None:
    done = run("verify", *stores(cluster))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 damaged, 0 warnings, 0 notes" in done.stdout
    found = json.loads(run("verify", *stores(cluster), "--json").stdout)
    assert not found["damaged"]
    assert found["objects"] >= 1
    assert {"partition": "orders-0", "open_transactions": 0}.items() <= next(
        one.items() for one in found["partitions"] if one["partition"] == "orders-0"
    )
    one = json.loads(verify(cluster, "--json", "--topic", TOPIC, "--partition", "1").stdout)
    assert [facts["partition"] for facts in one["partitions"]] == ["orders-1"]
    assert verify(cluster, "--topic", "none").exit_code == 2


ROW = "log = THE_LOG AND base = 0"
INLINE = f"UPDATE fencepost.entry SET inline = set_byte(inline, 70, get_byte(inline, 70) # 1) WHERE {ROW}"
HEADS = f"UPDATE fencepost.entry SET heads = set_byte(heads, 60, get_byte(heads, 60) # 1) WHERE {ROW}"


@pytest.mark.parametrize(
    ("damage", "repair", "words"),
    [
        (INLINE, INLINE, "CRC-32C does not match"),
        (HEADS, HEADS, "the headers in the row are not those of its batches"),
        (
            f"UPDATE fencepost.entry SET count = count + 1 WHERE {ROW}",
            f"UPDATE fencepost.entry SET count = count - 1 WHERE {ROW}",
            "the batches end at offset",
        ),
        (
            f"UPDATE fencepost.entry SET batches = batches + 1 WHERE {ROW}",
            f"UPDATE fencepost.entry SET batches = batches - 1 WHERE {ROW}",
            "but the row has",
        ),
        (
            f"UPDATE fencepost.entry SET max_timestamp = max_timestamp + 1 WHERE {ROW}",
            f"UPDATE fencepost.entry SET max_timestamp = max_timestamp - 1 WHERE {ROW}",
            "largest timestamp",
        ),
        (
            f"UPDATE fencepost.entry SET producer_ids = producer_ids || 4711::bigint WHERE {ROW}",
            f"UPDATE fencepost.entry SET producer_ids = array_remove(producer_ids, 4711::bigint) WHERE {ROW}",
            "producer ids",
        ),
        (
            "UPDATE fencepost.entry SET base = base + 1000000 WHERE log = THE_LOG AND base = (SELECT max(base)"
            " FROM fencepost.entry WHERE log = THE_LOG)",
            "UPDATE fencepost.entry SET base = base - 1000000 WHERE log = THE_LOG AND base >= 1000000",
            "its rows end at offset",
        ),
        (
            "UPDATE fencepost.entry SET log = -1 WHERE log = THE_LOG AND base = 1",
            "UPDATE fencepost.entry SET log = THE_LOG WHERE log = -1",
            "the row at offset 2 follows one that ends at 1",
        ),
        (
            "UPDATE fencepost.head SET next = next + 1 WHERE log = THE_LOG",
            "UPDATE fencepost.head SET next = next - 1 WHERE log = THE_LOG",
            "but the database gives the next record offset",
        ),
        (
            f"UPDATE fencepost.entry SET object = 4711, inline = NULL WHERE {ROW}",
            None,
            "the object does not exist",
        ),
    ],
)
def test_damage_in_the_database_is_found(
    cluster: ClusterProcesses, damage: str, repair: str | None, words: str
) -> None:
    (inline,) = sql(cluster, f"SELECT inline FROM fencepost.entry WHERE {ROW}")[0]
    sql(cluster, damage)
    try:
        done = verify(cluster, "--topic", TOPIC)
    finally:
        if repair is None:
            sql(cluster, f"UPDATE fencepost.entry SET object = 0, inline = %s WHERE {ROW}", inline)
        else:
            sql(cluster, repair)
    assert done.exit_code == 1, done.output
    assert words in done.output
    assert "damage: orders-0" in done.output
    assert verify(cluster).exit_code == 0, "repaired"


def test_damage_of_an_object_is_found(cluster: ClusterProcesses) -> None:
    file = object_file(cluster)
    content = file.read_bytes()
    try:
        for damaged, words in (
            (content[:-1], "bytes there, but the database names"),
            (content[:500] + bytes([content[500] ^ 1]) + content[501:], "CRC-32C does not match"),
            # No batch's CRC-32C covers its leader epoch.
            (content[:15] + bytes([content[15] ^ 1]) + content[16:], "but the row was written with"),
            (None, "the object does not exist"),
        ):
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            done = verify(cluster)
            assert (done.exit_code, words in done.output) == (1, True), done.output
            file.write_bytes(content)
    finally:
        file.write_bytes(content)


def test_an_object_with_the_records_of_another_partition_is_found(cluster: ClusterProcesses) -> None:
    """Merged rows have no headers to compare: the row's checksum shows it."""
    merge = f"UPDATE fencepost.entry SET kind = %s, heads = %s, inline = %s WHERE {ROW}"
    ((heads, inline),) = sql(cluster, f"SELECT heads, inline FROM fencepost.entry WHERE {ROW}")
    other = inline[:-6] + b"other" + inline[-1:]
    foreign = other[:17] + crc32c.crc32c(other[21:]).to_bytes(4, "big") + other[21:]
    try:
        sql(cluster, merge, 1, None, foreign)
        done = verify(cluster, "--topic", TOPIC)
        assert (done.exit_code, "but the row was written with" in done.output) == (1, True), done.output
        sql(cluster, merge, 1, None, inline)
        assert verify(cluster, "--topic", TOPIC).exit_code == 0
    finally:
        sql(cluster, merge, 0, heads, inline)


def test_a_wrong_snapshot_of_producers_is_found(cluster: ClusterProcesses) -> None:
    ((end,),) = sql(cluster, "SELECT next FROM fencepost.head WHERE log = THE_LOG")
    stranger = ProducerEntry(4711, 3, -1, 1000, -1, (BatchMetadata(5, 2, 0, 1000),))
    insert = "INSERT INTO fencepost.snapshot VALUES (THE_LOG, 'producers', %s, %s)"
    try:
        sql(cluster, insert, end, encode_snapshot([stranger]))
        done = verify(cluster)
        assert (done.exit_code, "it has producer 4711" in done.output) == (1, True), done.output
        sql(cluster, "UPDATE fencepost.snapshot SET value = '\\x00' WHERE log = THE_LOG")
        assert "too short for a producer snapshot" in verify(cluster).output
        sql(cluster, "UPDATE fencepost.snapshot SET base = base + 1 WHERE log = THE_LOG")
        assert "behind its end" in verify(cluster).output
    finally:
        sql(cluster, "DELETE FROM fencepost.snapshot WHERE log = THE_LOG")


def test_what_loses_nothing_is_a_warning_or_a_note(cluster: ClusterProcesses) -> None:
    stranger = object_file(cluster).parent.parent / object_name(1 << 40)
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_bytes(b"left by a killed broker")
    sql(cluster, "UPDATE fencepost.head SET size_bytes = size_bytes + 1 WHERE log = THE_LOG")
    try:
        done = verify(cluster)
    finally:
        stranger.unlink()
        sql(cluster, "UPDATE fencepost.head SET size_bytes = size_bytes - 1 WHERE log = THE_LOG")
    assert done.exit_code == 0, done.output
    assert (
        f"note: {stranger.parent.parent}: the database does not know 1 object ({object_name(1 << 40)})" in done.output
    )
    assert "warning: orders-0" in done.output


def test_brokers_may_run_meanwhile(server: PostgresServer, tmp_path: Path) -> None:
    """Records are written while the check reads; it finds no damage."""
    with ClusterProcesses(tmp_path, server) as cluster:
        broker = cluster.start(1)
        found: list[Result] = []

        async def both() -> None:
            async with Client(broker.address) as kafka, trio.open_nursery() as nursery:
                async with kafka.admin() as admin:
                    await admin.create_topics(TOPIC, partitions=2)

                async def produce() -> None:
                    async with kafka.producer() as producer:
                        number = 0
                        while True:
                            await producer.send(TOPIC, b"x" * (10 if number % 10 else 50_000), partition=number % 2)
                            number += 1

                nursery.start_soon(produce)
                for _ in range(3):
                    found.append(await trio.to_thread.run_sync(verify, cluster))
                nursery.cancel_scope.cancel()

        trio.run(both)
    assert [done.exit_code for done in found] == [0, 0, 0], found[-1].output
    assert "0 damaged, 0 warnings" in found[-1].output


SEGMENTS = "SELECT count(*) FROM fencepost.entry JOIN fencepost.head USING (log) WHERE kind = 1 AND name = %s"
SNAPSHOTS = "SELECT count(*) FROM fencepost.snapshot WHERE log = THE_LOG"


async def test_merged_and_compacted_rows_are_healthy(server: PostgresServer, tmp_path: Path) -> None:
    """Also the aborted transactions of segments, and the snapshots of the producers beside a fold of all batches."""
    soon = {
        "cluster.merge.interval.ms": "50",
        "cluster.merge.min.rows": "4",
        "cluster.inline.max.bytes": "300",
        "cluster.linger.ms": "0",
        "log.cleaner.backoff.ms": "100",
    }
    with ClusterProcesses(tmp_path, server) as cluster:
        broker = cluster.start(1, **soon)
        await write_much(broker.address)
        for log in ("orders-0", "compacted-0"):
            await soon_true(lambda log=log: sql(cluster, SEGMENTS, log)[0][0])
        await soon_true(lambda: sql(cluster, SNAPSHOTS)[0][0])
        healthy(await trio.to_thread.run_sync(verify, cluster))
        assert broker.stop() == 0
        healthy(verify(cluster))
        sql(cluster, "UPDATE fencepost.entry SET aborted = ''::bytea WHERE log = THE_LOG AND length(aborted) > 0")
        assert "its markers abort" in verify(cluster).output


async def write_much(address: str) -> None:
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    async with Client(address) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics(TOPIC)
            await admin.create_topics("compacted", configs=compacted)
        async with kafka.transactional_producer("one") as producer:
            for number in range(40):
                try:
                    async with producer.transaction() as txn:
                        await txn.send(TOPIC, bytes(number % 5 * 100))
                        await txn.send("compacted", bytes(100), key=b"%d" % (number % 3))
                        if number % 3 == 0:
                            await producer.flush()
                            raise LookupError
                except LookupError:
                    continue


async def soon_true(ask: Callable[[], Any]) -> None:
    await trio.to_thread.run_sync(until, ask)


def healthy(done: Result) -> None:
    assert (done.exit_code, "0 damaged, 0 warnings" in done.output) == (0, True), done.output


def test_wrong_words_are_explained(cluster: ClusterProcesses, tmp_path: Path) -> None:
    for words, text in (
        ((), "name a data directory, or a cluster"),
        ((str(tmp_path), "--store", cluster.store), "not both"),
        (("--store", cluster.store), "no object store is named"),
    ):
        done = CliRunner().invoke(cli, ["verify", *words])
        assert (done.exit_code, text in done.output) == (2, True), done.output
