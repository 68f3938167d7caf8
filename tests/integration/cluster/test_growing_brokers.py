"""Broker processes over a real PostgreSQL with many small commits: rows and objects stay few, and records readable."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from fencepost.cli.main import cli
from fencepost.client import Client
from fencepost.protocol.topics import TopicPartition
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import PostgresServer
from tests.kit.waiting import until

TOPIC = "orders"
HERE = TopicPartition(TOPIC, 0)
SECONDS = 60
SOON = {
    "cluster.merge.interval.ms": "100",
    "cluster.merge.min.rows": "4",
    "cluster.gc.interval.ms": "100",
    "cluster.inline.max.bytes": "300",
    "cluster.linger.ms": "0",
}


@pytest.fixture
def cluster(server: PostgresServer, tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, server) as processes:
        yield processes


async def committed(bootstrap: str, count: int) -> list[bytes]:
    """The values of the first `count` committed records, from both partitions."""
    found: list[bytes] = []
    async with Client(bootstrap) as kafka, kafka.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
        with trio.fail_after(SECONDS):
            async for record in consumer:
                found.append(record.value)
                if len(found) == count:
                    return found
    raise AssertionError("the consumer ended")


def verify(cluster: ClusterProcesses) -> None:
    """Stop the brokers, and check all rows against their bytes."""
    for broker in cluster.brokers.values():
        if broker.running:
            broker.stop()
    stores = ["--store", cluster.store, "--objects", f"file://{cluster.objects}"]
    done = CliRunner().invoke(cli, ["verify", *stores])
    assert done.exit_code == 0, done.output


async def test_small_commits_become_few_rows_and_objects(cluster: ClusterProcesses) -> None:
    """With transactions, aborted ones too, and a kill -9 in the middle: every committed record is there once."""
    first = cluster.start(1, **SOON)
    cluster.start(2, **SOON)
    sent: list[bytes] = []
    async with Client(cluster.bootstrap) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics(TOPIC, partitions=2)
        async with kafka.transactional_producer("one") as producer, kafka.producer() as plain:
            with trio.fail_after(SECONDS):
                for number in range(120):
                    if number == 60:
                        first.kill()
                    value = b"%d " % number + bytes(number % 5 * 100)
                    await plain.send(TOPIC, b"plain " + value, partition=0)
                    sent.append(b"plain " + value)
                    try:
                        async with producer.transaction() as txn:
                            for partition in range(2):
                                await txn.send(TOPIC, value, partition=partition)
                            if number % 3 == 0:
                                await producer.flush()
                                raise LookupError
                    except LookupError:
                        continue
                    sent += [value, value]
    assert cluster.owner().broker == 2
    until(lambda: max(cluster.rows().values()) <= 16)
    rows = cluster.rows()
    until(lambda: len(cluster.files()) <= sum(rows.values()))
    assert sorted(await committed(cluster.brokers[2].address, len(sent))) == sorted(sent)
    first.start()
    cluster.brokers[2].kill()
    cluster.wait_active(1)
    assert sorted(await committed(first.address, len(sent))) == sorted(sent)
    for broker in cluster.brokers.values():
        assert "could not be merged" not in broker.log()
        assert "cannot be read" not in broker.log()
    verify(cluster)


async def test_compacted_topics_keep_the_newest_records(cluster: ClusterProcesses) -> None:
    """Also the offsets of groups: the next broker, after a kill -9, reads small logs and resumes where they say."""
    settings = {**SOON, "log.cleaner.backoff.ms": "100"}
    first = cluster.start(1, **settings)
    cluster.start(2, **settings)
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    async with Client(cluster.bootstrap) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics(TOPIC, partitions=1, configs=compacted)
        async with kafka.producer() as producer, kafka.admin() as admin:
            with trio.fail_after(SECONDS):
                for number in range(200):
                    await producer.send(TOPIC, b"%d" % number, key=b"%d" % (number % 5))
                    if number % 5 == 4:
                        await admin.alter_group_offsets("g", {HERE: number + 1})
    until(lambda: cluster.bytes(f"{TOPIC}-0") < 3000)
    until(lambda: cluster.bytes("__consumer_offsets-") < 5000)
    first.kill()
    cluster.wait_active(2)
    bootstrap = cluster.brokers[2].address
    values: dict[bytes, bytes] = {}
    async with Client(bootstrap) as kafka, kafka.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
        with trio.fail_after(SECONDS):
            async for record in consumer:
                assert record.key is not None
                values[record.key] = record.value
                if record.offset == 199:
                    break
    assert values == {b"%d" % key: b"%d" % (195 + key) for key in range(5)}
    async with Client(bootstrap) as kafka, kafka.admin() as admin:
        assert (await admin.list_group_offsets("g"))[HERE].offset == 200
    verify(cluster)


async def test_the_rows_and_objects_of_a_deleted_topic_go_while_the_broker_runs(cluster: ClusterProcesses) -> None:
    broker = cluster.start(1, **SOON)
    objects = len(cluster.files())
    async with Client(broker.address) as kafka, kafka.admin() as admin:
        await admin.create_topics(TOPIC, partitions=2)
        async with kafka.producer() as producer:
            for partition in range(2):
                await producer.send(TOPIC, bytes(50_000), partition=partition)
        assert {f"{TOPIC}-0", f"{TOPIC}-1"} <= cluster.rows().keys()
        assert len(cluster.files()) > objects
        await admin.delete_topics(TOPIC)
    until(lambda: not any(name.startswith(TOPIC) for name in cluster.rows()), what="the rows to be deleted")
    until(
        lambda: len(cluster.files()) <= objects + 2, what="the objects to be deleted"
    )  # those of the metadata may grow
