"""/ready and /metrics of brokers of a cluster, while stores go away and come back."""

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from fencepost.client import Client
from fencepost.testing.reserved_port import reserve_port
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import PostgresServer, postgres_or_skip
from tests.kit.ready import ready
from tests.kit.store_commands import begin
from tests.kit.waiting import until

TOPIC = "orders"
METERED = {"metrics.listen": "127.0.0.1:0"}


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that the test may kill."""
    with postgres_or_skip() as started:
        yield started


def metrics(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=100) as response:
        lines = [line.rpartition(" ") for line in response.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


async def produce(bootstrap: str, *values: bytes) -> None:
    async with Client(bootstrap) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics(TOPIC)
        async with kafka.producer() as producer:
            for value in values:
                await producer.send(TOPIC, value)


def test_metrics_follow_what_happened(server: PostgresServer, tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, server) as cluster:
        first, second = cluster.start(1, **METERED), cluster.start(2, **METERED)
        trio.run(produce, first.address, b"small", b"large" * 20_000)
        active, standby = metrics(first.facts["metrics"]), metrics(second.facts["metrics"])
        assert (active["fencepost_cluster_active"], standby["fencepost_cluster_active"]) == (1, 0)
        assert active["fencepost_cluster_commit_seconds_count"] >= 2
        assert active["fencepost_cluster_commit_seconds_sum"] > 0
        commits = active["fencepost_cluster_commit_seconds_count"]
        assert active['fencepost_cluster_commit_seconds_bucket{le="+Inf"}'] == commits
        assert active["fencepost_cluster_object_put_seconds_count"] == 1
        assert active["fencepost_cluster_object_put_bytes_total"] > 100_000
        assert active["fencepost_cluster_rows"] >= 2
        assert active["fencepost_cluster_leader_epoch"] == standby["fencepost_cluster_leader_epoch"] == 1
        assert active["fencepost_cluster_conflicts_total"] == 0
        assert active["fencepost_cluster_merges_total"] >= 0
        assert active["fencepost_cluster_objects_deleted_total"] == 0
        for broker in (first, second):
            address = broker.facts["metrics"]
            until(lambda address=address: metrics(address)["fencepost_cluster_brokers"] == 2)
            until(lambda address=address: metrics(address)['fencepost_store_available{store="database"}'] == 1)
            until(lambda address=address: metrics(address)['fencepost_store_available{store="objects"}'] == 1)
            assert metrics(address)["fencepost_cluster_lease_age_seconds"] < 100
        assert metrics(first.facts["metrics"])['fencepost_store_table_bytes{table="entry"}'] > 0


def test_ready_names_the_role_and_the_missing_store(own_server: PostgresServer, tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, own_server) as cluster:
        brokers = {1: "active", 2: "standby"}
        for number in brokers:
            cluster.start(number, **METERED, **{"cluster.lease.ms": "60000"})
        pages = {number: cluster.brokers[number].facts["metrics"] for number in brokers}
        for number, role in brokers.items():
            until(lambda number=number: ready(pages[number])[0] == 200)
            facts = ready(pages[number])[1]
            assert (facts["role"], facts["active_broker"], facts["missing"]) == (role, 1, [])
        folder = cluster.objects.rename(tmp_path / "elsewhere")
        for page in pages.values():
            until(lambda page=page: ready(page)[1]["missing"] == ["objects"], seconds=60)
            assert ready(page)[0] == 503
            assert "shared directory" in ready(page)[1]["objects"]
        folder.rename(cluster.objects)
        for page in pages.values():
            until(lambda page=page: ready(page)[0] == 200, seconds=60)
        own_server.kill()
        for page in pages.values():
            until(lambda page=page: ready(page)[1]["missing"] == ["database"], seconds=60)
            assert ready(page)[0] == 503
        own_server.start()
        for page in pages.values():
            until(lambda page=page: ready(page)[0] == 200, seconds=60)
        until(lambda: metrics(pages[1])["fencepost_cluster_reconnects_total"] >= 1)


def test_a_broker_without_a_database_answers_ready(tmp_path: Path) -> None:
    """It has no listener for clients yet, and waits."""
    owner = threading.Event()
    page = f"127.0.0.1:{reserve_port(owner, '127.0.0.1')}"
    stores = ("--store", "postgresql://127.0.0.1:1/fencepost", "--objects", f"file://{tmp_path}")
    broker = begin("serve", *stores, "--listen", "127.0.0.1:0", "--metrics", page)

    def answers() -> bool:
        try:
            return ready(page)[1]["missing"] == ["database", "objects"] and "refused" in ready(page)[1]["database"]
        except (ConnectionError, urllib.error.URLError):
            return False

    until(answers, seconds=60)
    status, facts = ready(page)
    assert (status, facts["role"]) == (503, "joining")
    assert metrics(page)['fencepost_store_available{store="database"}'] == 0
    broker.terminate()
    assert "the broker waits" in broker.communicate(timeout=100)[1]
    assert broker.returncode == 0
