"""The recipe of docs/recipes/two_phase_commit.md, killed at each of its steps (rows T22, T23; KIP-939)."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.project_files import ROOT
from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.connections import Connections
from tests.kit.two_phase_worker import TOPIC
from tests.kit.wire import committed_values

SETTINGS = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}
STEPS = ["opened", "claimed", "recovered", "sent", "prepared", "worked", "decided", "completed"]
DECIDED_FROM = STEPS.index("decided")
WITH_THE_BROKER = STEPS if os.environ.get("CHAOS_ROUNDS") else ["claimed", "prepared", "decided"]
"""At which of them the broker is killed as well; at all of them in the long runs by hand."""
PARTITIONS = 3


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(files=True, settings=SETTINGS)


@pytest.fixture
def connections(broker: BrokerProcess) -> Iterator[Connections]:
    made = Connections(broker)
    made.new().create_topic(TOPIC, partitions=PARTITIONS)
    yield made
    made.close()


def work(broker: BrokerProcess, database: Path, number: int, step: str, *, kill_broker: bool) -> int:
    """Run a worker to its end, and start the broker again if that died, too; the worker's return code."""
    victims = [str(broker.pid)] if kill_broker else []
    command = [sys.executable, "-m", "tests.kit.two_phase_worker", broker.address, str(database), str(number), step]
    done = subprocess.run([*command, *victims], cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert not done.stderr, done.stderr.decode()
    if kill_broker:
        broker.kill()
        broker.start()
    return done.returncode


def test_database_and_topic_agree_whatever_dies_at_whatever_step(
    broker: BrokerProcess, connections: Connections, tmp_path: Path
) -> None:
    """Each worker recovers what the one before it left, and dies one step later in its own life, some with the broker.

    A payment exists on both sides exactly if its worker came as far as the database's commit.
    """
    database = tmp_path / "payments.db"
    for number, step in enumerate(STEPS):
        code = work(broker, database, number, step, kill_broker=step in WITH_THE_BROKER)
        assert code == -signal.SIGKILL, step
    assert work(broker, database, len(STEPS), "none", kill_broker=False) == 0
    expected = [*range(DECIDED_FROM, len(STEPS)), len(STEPS)]
    with sqlite3.connect(database) as connection:
        rows = connection.execute("SELECT number FROM payments ORDER BY number").fetchall()
    connection.close()
    assert [number for (number,) in rows] == expected
    wire = connections.new()
    values = [
        int(value or b"")
        for partition in range(PARTITIONS)
        for value in committed_values(wire.fetch(TOPIC, partition=partition, isolation=1))
    ]
    assert sorted(values) == [number for number in expected for _ in range(8)], "all of a payment, or nothing"
    ends = [(wire.offset_of(TOPIC, -1, isolation=i, partition=p).offset) for p in range(PARTITIONS) for i in (0, 1)]
    assert ends[::2] == ends[1::2], "nothing is left open"
