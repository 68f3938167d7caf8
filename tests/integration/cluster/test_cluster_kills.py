"""Kill -9 of brokers and PostgreSQL under load; the long form is `python -m tests.kit.cluster_kills --cycles 200`."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.kill_cluster import KillCluster
from tests.kit.postgres_server import PostgresServer
from tests.kit.waiting import until

ROOT = Path(__file__).resolve().parents[3]
SECONDS_MAX = 400
LONG = bool(os.environ.get("FENCEPOST_LONG"))
FAULTS = (
    "killed after commit",
    "killed while loading",
    "database killed",
    "commit: answer lost",
)
PLANTED = {
    "acknowledge_before_commit": ("killed before late commits", "acknowledged record is not where it should be"),
    "commit_in_parts": ("killed between parts", "a transaction is torn"),
    "commit_without_claims": ("garbage collected", "ends after"),
    "commit_without_fence": ("paused", "something else"),
}
"""Each fault with the cycle that shows it, and what the checker says."""

pytestmark = [pytest.mark.timeout(SECONDS_MAX + 10), pytest.mark.usefixtures("server")]


def play(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A run in a process group of its own, of which nothing is left."""
    command = [sys.executable, "-m", "tests.kit.cluster_kills", "--directory", str(directory), *words]
    run = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = run.communicate(timeout=SECONDS_MAX)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    return subprocess.CompletedProcess(command, run.returncode, said)


@pytest.fixture
def cluster(server: PostgresServer, tmp_path: Path) -> Iterator[KillCluster]:
    with KillCluster(tmp_path, server) as made:
        yield made


def test_a_broker_keeps_its_lease_while_it_loads(cluster: KillCluster) -> None:
    first = cluster.active()
    second = cluster.other(first)
    second.order("hold", "while loading")
    first.kill()
    until(second.is_held)
    first.start()
    time.sleep(2 * ClusterProcesses.LEASE_MS / 1000)
    assert cluster.active() is second
    assert first.facts["role"] == "standby"


def test_a_broker_that_is_taken_over_while_it_starts_joins_again(cluster: KillCluster) -> None:
    """Its event loop stands still for longer than the lease; then it commits, which fails."""
    first = cluster.active()
    second = cluster.other(first)
    second.order("hold", "before registering")
    first.kill()
    until(second.is_held)
    first.start()
    until(lambda: cluster.active() is first)
    second.take_back()
    until(lambda: "taken over while it started" in second.log() or "stopped in order" in second.log())
    first.kill()
    until(lambda: cluster.active() is second)


def test_a_broker_that_is_fenced_before_it_takes_its_slots_joins_again(cluster: KillCluster) -> None:
    """It was paused between joining the cluster and its first take-over, and another process has joined with its id."""
    broker = cluster.active()
    cluster.other(broker).kill()
    time.sleep(2 * ClusterProcesses.LEASE_MS / 1000)  # as long as it has a lease, the slots are left for it
    broker.kill()
    broker.order("hold", "before take-over")
    with ThreadPoolExecutor(1) as threads:
        started = threads.submit(broker.start)
        until(broker.is_held)
        broker.pause()
        cluster.join_as(broker)
        broker.take_back()
        broker.resume()
        started.result()
    assert "joins again: broker" in broker.log()
    assert broker.facts["role"] == "active"


def test_nothing_acknowledged_is_lost_over_kills_of_brokers_and_of_the_database(tmp_path: Path) -> None:
    chosen = [word for name in FAULTS for word in ("--fault", name)]
    run = play(tmp_path, "--cycles", str(len(FAULTS)), "--seed", "ci", *chosen)
    assert run.returncode == 0, run.stdout
    assert "not reached" not in run.stdout


@pytest.mark.parametrize("planted", PLANTED if LONG else ["acknowledge_before_commit"])
def test_the_checker_finds_planted_faults(tmp_path: Path, planted: str) -> None:
    """One of them; FENCEPOST_LONG=1 has all."""
    fault, said = PLANTED[planted]
    run = play(tmp_path, "--cycles", "2", "--seed", "ci", "--planted", planted, "--fault", fault)
    assert run.returncode == 1, run.stdout
    assert "VIOLATED" in run.stdout
    assert said in run.stdout
