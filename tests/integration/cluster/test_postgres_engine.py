"""What is particular to the database in PostgreSQL: broken connections, waiting, versions, and words of errors."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from fencepost.broker.cluster.engine import Fenced, SchemaMismatch, StoreUnavailable
from tests.kit.engine_worlds import LEASE_MS, append, joined, row
from tests.kit.postgres_server import PostgresServer

if TYPE_CHECKING:
    from tests.kit.postgres_world import PostgresWorld

WAIT_SECONDS_MAX = 60
LEASE_MS_OF_TAKEOVER = 2000


class InThread:
    """A call that waits in the database."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._answer: object = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._call()
        except StoreUnavailable as error:
            self._answer = error

    def answer(self) -> object:
        self._thread.join(WAIT_SECONDS_MAX)
        assert not self._thread.is_alive(), "the call still waits"
        return self._answer


@contextmanager
def heads_locked(world: "PostgresWorld") -> Iterator[None]:
    """As by the transaction of another broker that is under way: commits wait while they hold their broker's row."""
    from fencepost.broker.cluster.database import connection

    with connection.connect(connection.parse(world.conninfo)) as other, other.transaction():
        other.execute(f'SELECT FROM "{world.schema}".head FOR UPDATE')
        yield


def wait_for_waiting(world: "PostgresWorld", backends: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while world.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") != [(backends,)]:
        assert time.monotonic() < deadline, "the statements do not wait for a lock"
        time.sleep(0.01)


def terminate_others(world: "PostgresWorld") -> None:
    world.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )


def test_an_engine_connects_again_after_its_connection_broke(world: "PostgresWorld") -> None:
    """The call that met the break says so; the broker asks with a new session."""
    broker = joined(world, 1)
    terminate_others(world)
    with pytest.raises(StoreUnavailable, match=r"PostgreSQL at .*terminating connection"):
        broker.commit(1, append(7, 0))
    session = broker.engine.open_session(broker.identity)
    assert session.commit_seq == 0
    assert broker._replace(session=session).commit(1, append(7, 0)) == (0,)


def test_a_commit_that_waits_is_not_there_after_its_connection_was_ended(world: "PostgresWorld") -> None:
    """It is rolled back as a whole."""
    broker = joined(world, 1)
    broker.commit(1, append(7, 0))
    with heads_locked(world):
        commit = InThread(lambda: broker.commit(2, append(7, 1), append(8, 0)))
        wait_for_waiting(world, 1)
        world.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        assert isinstance(commit.answer(), StoreUnavailable)
    assert world.engine().open_session(broker.identity).commit_seq == 1
    assert [(head.log, head.next) for head in world.engine().heads()] == [(7, 1)]


def test_a_new_session_waits_for_a_commit_under_way(world: "PostgresWorld") -> None:
    """So its answer is final."""
    broker = joined(world, 1)
    broker.commit(1, append(7, 0))
    with heads_locked(world):
        commit = InThread(lambda: broker.commit(2, append(7, 1)))
        wait_for_waiting(world, 1)
        opening = InThread(lambda: world.engine().open_session(broker.identity))
        wait_for_waiting(world, 2)
    assert commit.answer() == (1,)
    session = opening.answer()
    assert session == broker.session._replace(
        identity=broker.identity._replace(session=broker.identity.session + 1), commit_seq=2, bases=(1,)
    )


def test_a_takeover_waits_for_a_commit_under_way_and_then_sees_the_lease(world: "PostgresWorld") -> None:
    """The commit renewed the lease, however long ago the one before it ended."""
    owner, other = joined(world, 1), joined(world, 2)
    owner.engine.take_over(owner.identity, [7], LEASE_MS)
    owner.commit(1, append(7, 0))
    with heads_locked(world):
        commit = InThread(lambda: owner.commit(2, append(7, 1)))
        wait_for_waiting(world, 1)
        time.sleep(LEASE_MS_OF_TAKEOVER / 1000)
        taking = InThread(lambda: other.engine.take_over(other.identity, [7], LEASE_MS_OF_TAKEOVER))
        wait_for_waiting(world, 2)
    assert commit.answer() == (1,)
    assert taking.answer() == []
    owner.engine.renew(owner.identity)


def test_an_engine_works_on_after_the_server_was_killed(server: PostgresServer, world: "PostgresWorld") -> None:
    """What was committed is there; while the server is down, the text names it and keeps the password."""
    from fencepost.broker.cluster.database.postgres import PostgresEngine

    broker = joined(world, 1)
    broker.commit(1, append(7, 0, row(3)))
    outsider = PostgresEngine(f"{server.conninfo} password=secret", world.schema)
    server.kill()
    for engine in (broker.engine, outsider):
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"PostgreSQL at .*fencepost-pg") as down:
                engine.heads()
            assert "secret" not in str(down.value)
            assert "\n" not in str(down.value)
    server.start()
    world.connect_again()
    assert [head.next for head in broker.engine.heads()] == [3]
    assert broker.commit(2, append(7, 3)) == (3,)
    outsider.close()


def test_a_server_that_only_reads_is_unavailable(server: PostgresServer, world: "PostgresWorld") -> None:
    """It became a standby; of several servers in an address, the one that writes is used."""
    from fencepost.broker.cluster.database.postgres import PostgresEngine

    broker = joined(world, 1)
    world.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    world.execute("SELECT pg_reload_conf()")
    try:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while world.execute("SHOW default_transaction_read_only") != [("on",)] and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(StoreUnavailable, match="read-only transaction"):
            broker.engine.renew(broker.identity)
        with pytest.raises(StoreUnavailable, match="session is read-only"):
            PostgresEngine(server.conninfo, world.schema).slots()
    finally:
        world.execute("SET default_transaction_read_only = off")
        world.execute("ALTER SYSTEM RESET default_transaction_read_only")
        world.execute("SELECT pg_reload_conf()")


def test_a_schema_of_another_version_is_refused(world: "PostgresWorld") -> None:
    """The text says which command helps."""
    for version, text in ((0, "run `fencepost store upgrade`"), (99, "install a newer fencepost")):
        world.execute("UPDATE {}.cluster SET schema_version = %s", version)
        with pytest.raises(SchemaMismatch, match=text):
            world.engine().slots()


def test_a_missing_schema_is_refused(server: PostgresServer, world: "PostgresWorld") -> None:
    """At the first call; and later, if someone deletes it under a broker that runs."""
    from fencepost.broker.cluster.database.postgres import PostgresEngine

    with pytest.raises(SchemaMismatch, match="no schema other: run `fencepost store init`"):
        PostgresEngine(server.conninfo, "other").slots()
    broker = joined(world, 1)
    world.execute("ALTER TABLE {}.cluster RENAME TO gone")
    with pytest.raises(SchemaMismatch, match="no schema fencepost"):
        world.engine().slots()
    world.execute("DROP TABLE {}.broker CASCADE")
    with pytest.raises(SchemaMismatch, match=r"relation .*broker.* does not exist"):
        broker.engine.renew(broker.identity)


def test_a_schema_may_have_any_name(server: PostgresServer) -> None:
    """It is quoted everywhere, also inside of functions."""
    from tests.kit.postgres_world import PostgresWorld

    world = PostgresWorld(server.conninfo, "100% Ours")
    broker = joined(world, 1)
    assert broker.commit(1, append(7, 0)) == (0,)
    assert [head.next for head in broker.engine.heads()] == [1]
    world.close()


def test_a_role_without_rights_is_told_so(server: PostgresServer, world: "PostgresWorld") -> None:
    """The database refuses; no table is read."""
    from fencepost.broker.cluster.database.postgres import PostgresEngine

    world.execute("CREATE ROLE stranger LOGIN")
    try:
        with pytest.raises(StoreUnavailable, match="permission denied for schema fencepost"):
            PostgresEngine(f"{server.conninfo} user=stranger", world.schema).slots()
    finally:
        world.execute("DROP ROLE stranger")


def test_a_fenced_error_names_the_identity(world: "PostgresWorld") -> None:
    """A log line has all that one needs."""
    broker = joined(world, 1)
    with pytest.raises(Fenced, match="broker 1 with incarnation 1 and session 1 is fenced, or 5 is not its next"):
        broker.commit(5)


def test_the_address_decides_before_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so do libpq's environment variables."""
    pytest.importorskip("psycopg", exc_type=ImportError)
    from fencepost.broker.cluster.database.connection import parse

    assert parse("postgresql://db.example/orders?connect_timeout=60")["connect_timeout"] == "60"
    assert parse("host=db.example")["connect_timeout"] == 5
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "7")
    assert "connect_timeout" not in parse("host=db.example")
    with pytest.raises(ValueError, match="neither postgresql://") as refused:
        parse("secret")
    assert "secret" not in str(refused.value)
