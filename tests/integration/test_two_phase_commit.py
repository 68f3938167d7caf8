"""The recipe of docs/recipes/two_phase_commit.md, killed at each of its steps (rows T22, T23; KIP-939)."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pytest

import fencepost
from examples.two_phase_commit import Decisions, TakenOver
from tests.architecture.project_files import ROOT
from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.connections import Connections
from tests.kit.postgres_server import PostgresServer, postgres_or_skip
from tests.kit.two_phase_worker import TOPIC, connector
from tests.kit.wire import committed_values

SETTINGS = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}
STEPS = ["opened", "claimed", "recovered", "sent", "prepared", "worked", "decided", "completed"]
DECIDED_FROM = STEPS.index("decided")
ALL_DIE = STEPS if os.environ.get("CHAOS_ROUNDS") else ["claimed", "prepared", "worked", "decided"]
"""At which of them the broker is killed as well, and the database's server if it has one; at all in runs by hand."""
PARTITIONS = 3


class Database(Protocol):
    """What the two databases differ in."""

    name: str
    """As the worker takes it."""

    def victims(self) -> list[int]:
        """The processes that the database is."""
        ...

    def restart(self) -> None:
        """Start it again over what it stored."""
        ...


class SqliteFile:
    """SQLite is part of the process that dies."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)

    def victims(self) -> list[int]:
        return []

    def restart(self) -> None:
        assert Path(self.name).exists()


class Postgres:
    """A server of the test's own."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.name = server.conninfo

    def victims(self) -> list[int]:
        return [self._server.pid]

    def restart(self) -> None:
        self._server.kill()
        self._server.start()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Both databases that the recipe speaks of."""
    if request.param == "sqlite":
        yield SqliteFile(tmp_path / "payments.db")
        return
    with postgres_or_skip() as server:
        yield Postgres(server)


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(files=True, settings=SETTINGS)


@pytest.fixture
def connections(broker: BrokerProcess) -> Iterator[Connections]:
    made = Connections(broker)
    made.new().create_topic(TOPIC, partitions=PARTITIONS)
    yield made
    made.close()


def work(broker: BrokerProcess, database: Database, number: int, step: str, *, all_die: bool) -> int:
    """Run a worker to its end, and start again what died with it; the worker's return code."""
    victims = [broker.pid, *database.victims()] if all_die else []
    command = [sys.executable, "-m", "tests.kit.two_phase_worker", broker.address, database.name, str(number), step]
    command += [str(pid) for pid in victims]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=100, check=False)
    assert not done.stderr, done.stderr.decode()
    if all_die:
        broker.kill()
        broker.start()
        database.restart()
    return done.returncode


def rows_of(database: Database, statement: str) -> list[Any]:
    connect, _ = connector(database.name)
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        return [value for (value,) in cursor.fetchall()]


def test_database_and_topic_agree_whatever_dies_at_whatever_step(
    broker: BrokerProcess, connections: Connections, database: Database
) -> None:
    """Each worker recovers what the one before it left, and dies one step later in its own life, some with the broker.

    A payment exists on both sides exactly if its worker came as far as the database's commit.
    """
    for number, step in enumerate(STEPS):
        code = work(broker, database, number, step, all_die=step in ALL_DIE)
        assert code == -signal.SIGKILL, step
    assert work(broker, database, len(STEPS), "none", all_die=False) == 0
    expected = [*range(DECIDED_FROM, len(STEPS)), len(STEPS)]
    assert rows_of(database, "SELECT number FROM payments ORDER BY number") == expected
    wire = connections.new()
    values = [
        int(value or b"")
        for partition in range(PARTITIONS)
        for value in committed_values(wire.fetch(TOPIC, partition=partition, isolation=1))
    ]
    assert sorted(values) == [number for number in expected for _ in range(8)], "all of a payment, or nothing"
    ends = [(wire.offset_of(TOPIC, -1, isolation=i, partition=p).offset) for p in range(PARTITIONS) for i in (0, 1)]
    assert ends[::2] == ends[1::2], "nothing is left open"


def test_the_recipe_runs_as_it_stands_there(broker: BrokerProcess, connections: Connections, tmp_path: Path) -> None:
    recipe = (ROOT / "docs" / "recipes" / "two_phase_commit.md").read_text(encoding="utf-8")
    bridge, bank, *_ = re.findall(r"^```python\n(.*?)^```", recipe, re.MULTILINE | re.DOTALL)
    assert bridge == (ROOT / "examples" / "two_phase_commit.py").read_text(encoding="utf-8")
    (tmp_path / "two_phase_commit.py").write_text(bridge)
    (tmp_path / "bank.py").write_text(bank.replace("127.0.0.1:9092", broker.address))
    for _ in range(2):
        subprocess.run([sys.executable, "bank.py"], cwd=tmp_path, timeout=100, check=True)
    with closing(sqlite3.connect(tmp_path / "bank.db")) as database:
        assert database.execute("SELECT balance FROM accounts WHERE name = 'ann'").fetchall() == [(-20,)]
    wire = connections.new()
    assert committed_values(wire.fetch("bookings", partition=0, isolation=1)) == [b"-10", b"-10"]


class Deciding:
    """A process that did its work and is about to decide; in a thread that stops there until `go_on`."""

    def __init__(self, decisions: Decisions, prepared: fencepost.PreparedTransaction) -> None:
        self._worked, self._goes_on = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(decisions, prepared))
        self._thread.start()

    def _run(self, decisions: Decisions, prepared: fencepost.PreparedTransaction) -> None:
        try:
            decisions.commit(prepared, lambda cursor: None, self._stop_at)
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error
        finally:
            self._worked.set()

    def _stop_at(self, step: str) -> None:
        self._worked.set()
        assert self._goes_on.wait(100)

    def wait(self) -> None:
        assert self._worked.wait(100)

    def go_on(self) -> None:
        self._goes_on.set()
        self._thread.join(100)


def decisions_in(database: Database) -> Decisions:
    connect, mark = connector(database.name)
    return Decisions(connect, "contested", mark)


def test_a_successor_that_claims_late_waits_for_the_decision_and_learns_it(database: Database) -> None:
    """KIP-939's recovery asks the database once nobody can decide any more: the claim waits for an open decision."""
    old, new = decisions_in(database), decisions_in(database)
    assert old.claim("1:0") is None
    deciding = Deciding(old, fencepost.PreparedTransaction(1, 0))
    deciding.wait()
    learnt: list[str | None] = []
    claiming = threading.Thread(target=lambda: learnt.append(new.claim("1:1")))
    claiming.start()
    claiming.join(0.3)
    assert claiming.is_alive(), "it does not look while the old one may still commit"
    deciding.go_on()
    claiming.join(100)
    assert deciding.error is None
    assert learnt == ["1:0"]


def test_a_process_that_was_taken_over_decides_nothing(database: Database) -> None:
    """The database's own fence: the work of an old process goes with its decision."""
    old, new = decisions_in(database), decisions_in(database)
    old.claim("1:0")
    assert new.claim("1:1") is None

    def insert(cursor: Any) -> None:
        cursor.execute("INSERT INTO rows_of_work VALUES (1)")

    connect, _ = connector(database.name)
    with closing(connect()) as connection:
        connection.cursor().execute("CREATE TABLE rows_of_work (number INTEGER)")
        connection.commit()
    with pytest.raises(TakenOver):
        old.commit(fencepost.PreparedTransaction(1, 0), insert, lambda step: None)
    assert rows_of(database, "SELECT number FROM rows_of_work") == []
    assert rows_of(database, "SELECT decided FROM kafka_decisions") == [None]
