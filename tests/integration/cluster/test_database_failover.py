"""The database fails over to its standby: a synchronous one has every commit, an asynchronous one may lack the last."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import trio

from fencepost.client import Client
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.cluster_topic import SECONDS, TOPIC, create, everything
from tests.kit.postgres_server import PostgresServer, find_binaries, postgres_or_skip
from tests.kit.postgres_standby import PostgresStandby
from tests.kit.waiting import until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    """One for each test, because it dies for good."""
    with postgres_or_skip() as server:
        yield server


@contextmanager
def cluster_over_two(
    primary: PostgresServer, work_dir: Path, *, synchronous: bool
) -> Iterator[tuple[ClusterProcesses, PostgresStandby]]:
    """Brokers whose database has a standby."""
    binaries = find_binaries()
    assert binaries is not None
    with ClusterProcesses(work_dir, primary) as cluster, PostgresStandby(binaries, primary) as standby:
        standby.wait_streaming()
        if synchronous:
            with psycopg.connect(primary.conninfo, autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                connection.execute("SELECT pg_reload_conf()")
        cluster.store = cluster.store.replace(str(primary.directory), f"{primary.directory},{standby.directory}")
        yield cluster, standby


async def test_a_synchronous_standby_is_promoted_and_nothing_is_lost(primary: PostgresServer, tmp_path: Path) -> None:
    """Commits wait until one of the servers accepts writes, then continue: each record is there once, in order."""
    with cluster_over_two(primary, tmp_path, synchronous=True) as (cluster, standby):
        broker = cluster.start(1)
        cluster.start(2)
        async with Client(cluster.bootstrap) as kafka:
            await create(kafka)
            async with kafka.producer() as producer:
                with trio.fail_after(SECONDS):
                    for number in range(300):
                        if number == 150:
                            primary.kill()
                            await trio.to_thread.run_sync(standby.promote)
                        await producer.send(TOPIC, b"%d" % number)
        address = cluster.brokers[cluster.owner().broker or 1].address
        assert await everything(address, 300) == [(number, b"%d" % number) for number in range(300)]
        assert "lost commits" not in broker.log()


async def test_a_standby_that_lacks_commits_is_noticed(primary: PostgresServer, tmp_path: Path) -> None:
    """The negative control: what an asynchronous standby had not received is lost. The broker does not go on as if it
    were there: it is fenced, joins again, and serves what the database has.
    """
    with cluster_over_two(primary, tmp_path, synchronous=False) as (cluster, standby):
        broker = cluster.start(1)
        async with Client(cluster.bootstrap) as kafka:
            await create(kafka)
            async with kafka.producer() as producer:
                with trio.fail_after(SECONDS):
                    await producer.send(TOPIC, b"received")
                    standby.wait_caught_up()
                    standby.kill()
                    await producer.send(TOPIC, b"lost")
        primary.kill()
        standby.start()
        standby.promote()
        until(lambda: "the database lost commits" in broker.log(), seconds=SECONDS)
        cluster.wait_active(1)
        async with Client(broker.address) as kafka, kafka.producer() as producer:
            with trio.fail_after(SECONDS):
                await producer.send(TOPIC, b"after")
        assert await everything(broker.address, 2) == [(0, b"received"), (1, b"after")]
