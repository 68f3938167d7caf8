"""A backup as docs/cluster.md describes it: the database first, then the objects, while a broker writes."""

import shutil
from functools import partial
from pathlib import Path

import trio

from fencepost.client import Client
from tests.kit.cluster_processes import ClusterBrokerProcess, ClusterProcesses
from tests.kit.postgres_server import PostgresServer
from tests.kit.store_commands import dump, empty_database, restore, run
from tests.kit.waiting import soon

TOPIC = "orders"
SECONDS = 100


def value_of(number: int) -> bytes:
    """Small ones stay inline, large ones go into objects."""
    return b"%d " % number + b"x" * (0 if number % 3 else 20_000)


class Writing:
    """Sends numbered records until it is stopped; `acknowledged` are durable."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.stopped = False

    async def run(self, kafka: Client) -> None:
        async with kafka.producer() as producer:
            while not self.stopped:
                await producer.send(TOPIC, value_of(self.acknowledged))
                self.acknowledged += 1


async def read_all(address: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with Client(address) as kafka, kafka.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
        with trio.fail_after(SECONDS):
            async for record in consumer:
                found.append(record.value)
                if len(found) == count:
                    break
    return found


async def back_up_while_it_writes(broker: ClusterBrokerProcess, cluster: ClusterProcesses, backup: Path) -> int:
    """Returns how many records were acknowledged before the database's backup began."""
    writing = Writing()
    async with Client(broker.address) as kafka, trio.open_nursery() as nursery:
        async with kafka.admin() as admin:
            await admin.create_topics(TOPIC)
        nursery.start_soon(writing.run, kafka)
        await soon(lambda: writing.acknowledged >= 30)
        before = writing.acknowledged
        await trio.to_thread.run_sync(dump, cluster.store, backup / "database")
        reached = writing.acknowledged
        await soon(lambda: writing.acknowledged >= reached + 20)
        await trio.to_thread.run_sync(
            partial(shutil.copytree, ignore=shutil.ignore_patterns("*.part")), cluster.objects, backup / "objects"
        )
        writing.stopped = True
    return before


def test_a_restored_backup_has_all_that_was_acknowledged_before_it(server: PostgresServer, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    backup.mkdir()
    with ClusterProcesses(tmp_path, server) as cluster:
        before = trio.run(back_up_while_it_writes, cluster.start(1, **{"cluster.linger.ms": "0"}), cluster, backup)
    address = empty_database(server)
    restore(backup / "database", address)
    verified = run("verify", "--store", address, "--objects", f"file://{backup}/objects")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "no row refers to" in verified.stdout, "objects of later commits are in the backup, and no danger"
    taken = run("store", "take-over", "--wait", "0", "--store", address, "--objects", f"file://{backup}/objects")
    assert taken.returncode == 0, taken.stderr
    with ClusterBrokerProcess(
        tmp_path / "restored", 2, address, backup / "objects", {"cluster.lease.ms": "1500"}
    ) as broker:
        found = trio.run(read_all, broker.address, before)
        assert found == [value_of(number) for number in range(before)]
        trio.run(write_one, broker.address)
        assert broker.stop() == 0
    verified = run("verify", "--store", address, "--objects", f"file://{backup}/objects")
    assert verified.returncode == 0, verified.stdout + verified.stderr


async def write_one(address: str) -> None:
    """It goes into an object."""
    async with Client(address) as kafka, kafka.producer() as producer:
        await producer.send(TOPIC, b"after the restore" * 2000)
