"""PostgreSQL reports success with a warning if the wait for a standby was cancelled: then nothing is certain."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from confluent_kafka import Producer

from fencepost.broker.cluster.engine import Engine, Identity, StoreUnavailable
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.cluster_topic import SECONDS, TOPIC, create, everything
from tests.kit.engine_worlds import LEASE_MS, append, joined
from tests.kit.postgres_server import PostgresServer, postgres_or_skip
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.postgres_world import PostgresWorld

WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture
def alone() -> Iterator[PostgresServer]:
    """A server of the test's own."""
    with postgres_or_skip() as started:
        yield started


def execute(server: PostgresServer, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        found = connection.execute(statement.encode())
        return found.fetchall() if found.description is not None else []


def standby_is_missing(server: PostgresServer, missing: bool) -> None:
    execute(server, f"ALTER SYSTEM SET synchronous_standby_names = '{'ghost' if missing else ''}'")
    execute(server, "SELECT pg_reload_conf()")


async def test_nothing_is_acknowledged_whose_wait_for_the_standby_was_cancelled(
    alone: PostgresServer, tmp_path: Path
) -> None:
    """By an operator, or by statement_timeout. The record is acknowledged when a standby has it."""
    from fencepost.client import Client

    with ClusterProcesses(tmp_path, alone) as cluster:
        broker = cluster.start(1)
        async with Client(cluster.bootstrap) as kafka:
            await create(kafka)
        standby_is_missing(alone, True)
        answers: list[object] = []
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        producer.produce(TOPIC, b"once", partition=0, on_delivery=lambda error, message: answers.append(error))
        thread = threading.Thread(target=producer.flush, args=(SECONDS,))
        thread.start()
        until(lambda: execute(alone, f"SELECT {WAITING}"))

        def cancelled() -> bool:
            execute(alone, f"SELECT pg_cancel_backend(pid) {WAITING}")
            return broker.log().count("it is uncertain what is durable") >= 1

        until(cancelled, seconds=SECONDS)
        assert answers == []
        standby_is_missing(alone, False)
        thread.join(SECONDS)
        assert answers == [None]
        assert await everything(cluster.bootstrap, 1) == [(0, b"once")]


def test_sigterm_ends_a_broker_whose_commit_waits_for_a_standby(alone: PostgresServer, tmp_path: Path) -> None:
    """No timeout of a connection ends such a wait: the server is well."""
    with ClusterProcesses(tmp_path, alone) as cluster:
        broker = cluster.start(1)
        standby_is_missing(alone, True)
        until(lambda: execute(alone, f"SELECT {WAITING}"))
        assert broker.stop() == 0


CHANGES: dict[str, Callable[[Engine, Identity], object]] = {
    "renew": lambda engine, me: engine.renew(me),
    "open_session": lambda engine, me: engine.open_session(me),
    "take_over": lambda engine, me: engine.take_over(me, [1], LEASE_MS),
    "claim": lambda engine, me: engine.claim(1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_change_with_a_warning_is_certain(world: "PostgresWorld", change: str) -> None:
    """Whatever its language and its text."""
    broker = joined(world, 1)
    world.execute(
        "CREATE FUNCTION {}.warn() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE WARNING 'nicht sicher'; RETURN NULL; END $$"
    )
    for table in ("broker", "object"):
        world.execute(f"CREATE TRIGGER warns AFTER INSERT OR UPDATE ON {{}}.{table} EXECUTE FUNCTION {{}}.warn()")
    with pytest.raises(StoreUnavailable, match="nicht sicher"):
        CHANGES[change](broker.engine, broker.identity)


def test_a_commit_with_a_warning_happened_or_not(world: "PostgresWorld") -> None:
    """A new session tells, as after a broken connection."""
    broker = joined(world, 1)
    world.execute(
        "CREATE FUNCTION {}.warn() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE WARNING 'not sure'; RETURN NULL; END $$"
    )
    world.execute("CREATE TRIGGER warns AFTER INSERT ON {}.entry EXECUTE FUNCTION {}.warn()")
    with pytest.raises(StoreUnavailable, match="not sure"):
        broker.commit(1, append(7, 0))
    assert broker.engine.open_session(broker.identity).commit_seq == 1
