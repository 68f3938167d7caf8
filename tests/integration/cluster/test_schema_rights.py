"""What the documented rights in a cluster's database allow, and what a broker does if it lacks one of its own."""

import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.peers.login import PeerLogins
from fencepost.protocol.errors import ErrorCode
from tests.kit.broker_process import BrokerFailed
from tests.kit.cluster_processes import ClusterBrokerProcess, ClusterProcesses
from tests.kit.postgres_server import PostgresServer
from tests.kit.ready import ready
from tests.kit.sasl_broker import authenticate, handshake
from tests.kit.store_commands import as_role, empty_database, run
from tests.kit.waiting import until
from tests.kit.wire import Wire

DOCS = Path(__file__).parents[3] / "docs"
MECHANISM = "FENCEPOST-CLUSTER"
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:nobody",
    "metrics.listen": "127.0.0.1:0",
}
LAST_RELEASE = 3
"""The version of the schema in the last release."""


@pytest.fixture
def database(server: PostgresServer) -> str:
    return empty_database(server)


@pytest.fixture
def role(database: str) -> str:
    """One that may log in, and has no rights yet."""
    name = f"role_{secrets.token_hex(4)}"
    execute(database, f"CREATE ROLE {name} LOGIN")
    return name


def execute(address: str, *statements: str) -> list[tuple[Any, ...]]:
    """The rows of the last statement."""
    import psycopg

    with psycopg.connect(address, autocommit=True, client_encoding="utf8") as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description is not None else []


def documented_grants(page: str, grantee: str, role: str) -> list[str]:
    """The GRANT statements of a page of the docs for this grantee, for another role."""
    text = (DOCS / page).read_text()
    found = re.findall(rf"GRANT [A-Z, ]+ ON [A-Za-z_., ]+ TO {grantee}\b", text)
    assert found, f"{page} grants nothing to {grantee}"
    return [re.sub(rf"{grantee}$", role, statement) for statement in found]


def installed(address: str, version: int) -> None:
    """A schema of this version, as its fencepost made it."""
    import psycopg

    from fencepost.broker.cluster.database.schema import migrations, upgrade

    with psycopg.connect(address, autocommit=True) as connection:
        upgrade(connection, "fencepost", migrations()[:version])


def everything_in(address: str) -> list[object]:
    """Every value of every table that the role can read."""
    tables = execute(
        address,
        "SELECT relname FROM pg_class WHERE relnamespace = 'fencepost'::regnamespace AND relkind = 'r'"
        " AND has_table_privilege(oid, 'SELECT')",
    )
    return [
        value for (table,) in tables for row in execute(address, f"SELECT * FROM fencepost.{table}") for value in row
    ]


def logs_in(broker: ClusterBrokerProcess, secret: bytes) -> bool:
    """Whether this secret makes its holder `Broker:cluster`."""
    with Wire(broker.connect()) as wire:
        login = PeerLogins(secret).own_exchange()
        assert handshake(wire, MECHANISM).error_code == ErrorCode.NONE
        challenge = authenticate(wire, login.first())
        answer = authenticate(wire, login.step(bytes(challenge.auth_bytes)))
        return bool(answer.error_code == ErrorCode.NONE)


@pytest.mark.parametrize("grantees", [("reader",), ("reader", "spark")])
def test_the_documented_rights_of_spark_do_not_show_the_secret_of_the_brokers(
    server: PostgresServer, tmp_path: Path, role: str, grantees: tuple[str, ...]
) -> None:
    """Its holder logged in as `Broker:cluster`, a super user, after `SELECT secret FROM fencepost.cluster`."""
    with ClusterProcesses(tmp_path, server) as cluster:
        broker = cluster.start(1, **SECURED)
        execute(cluster.store, "INSERT INTO fencepost.head VALUES (-1, 'orders-0', '', 0, 0, 0)")
        execute(cluster.store, *(one for name in grantees for one in documented_grants("spark.md", name, role)))
        seen = everything_in(as_role(cluster.store, role))
        assert "orders-0" in seen, "the role reads tables"
        assert logs_in(broker, cluster.engine.secret(b"there is one"))
        for value in seen:
            if isinstance(value, bytes | memoryview) and len(bytes(value)) > 0:
                assert not logs_in(broker, bytes(value))


def test_an_upgrade_replaces_the_secret_that_readers_may_know(database: str, tmp_path: Path) -> None:
    installed(database, LAST_RELEASE)
    known = b"read long ago"
    execute(database, f"UPDATE fencepost.cluster SET secret = '\\x{known.hex()}'")
    assert run("store", "upgrade", "--store", database).returncode == 0
    (tmp_path / "objects").mkdir()
    with ClusterBrokerProcess(tmp_path / "broker", 1, database, tmp_path / "objects", SECURED) as broker:
        assert not logs_in(broker, known)


def test_a_role_with_the_documented_rights_serves_after_an_upgrade(database: str, tmp_path: Path, role: str) -> None:
    """It lacked rights on the new tables, and /ready said 200."""
    installed(database, 2)
    execute(database, *documented_grants("cluster.md", "app", role))
    assert run("store", "upgrade", "--store", database).returncode == 0
    app = as_role(database, role)
    checked = run("store", "check", "--store", app)
    assert (checked.returncode, "wrong:" in checked.stdout) == (0, False), checked.stdout
    (tmp_path / "objects").mkdir()
    with ClusterBrokerProcess(tmp_path / "broker", 1, app, tmp_path / "objects", SECURED) as broker:
        until(lambda: ready(broker.facts["metrics"])[0] == 200)
        assert execute(app, "INSERT INTO fencepost.proposal (log, value) VALUES (1, '') RETURNING log") == [(1,)]


def test_an_upgrade_gives_readers_only_what_they_had(database: str, role: str) -> None:
    """A role that read all tables reads the new ones; but not the secret."""
    installed(database, 2)
    execute(database, *documented_grants("spark.md", "reader", role))
    assert run("store", "upgrade", "--store", database).returncode == 0
    rights = execute(
        as_role(database, role),
        "SELECT relname, p FROM pg_class, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p WHERE relkind = 'r'"
        " AND relnamespace = 'fencepost'::regnamespace AND relname IN ('proposal', 'secret', 'entry')"
        " AND has_table_privilege(oid, p) ORDER BY relname",
    )
    assert rights == [("entry", "SELECT"), ("proposal", "SELECT")]


def test_new_tables_belong_to_the_owner_of_the_old_ones(database: str, role: str) -> None:
    """If an administrator runs the upgrade, the owner of the schema still has all rights."""
    name = execute(database, "SELECT current_database()")[0][0]
    execute(database, f'GRANT CREATE ON DATABASE "{name}" TO {role}')
    owner = as_role(database, role)
    installed(owner, 2)
    assert run("store", "upgrade", "--store", database).returncode == 0
    owners = execute(
        database,
        "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'fencepost'::regnamespace",
    )
    assert owners == [(role,)]
    assert run("store", "check", "--store", owner).returncode == 0


def test_a_schema_that_an_administrator_made_is_filled(database: str, role: str) -> None:
    """Its owner needs no right to create schemas."""
    execute(database, f"CREATE SCHEMA fencepost AUTHORIZATION {role}")
    owner = as_role(database, role)
    assert run("store", "check", "--store", owner).returncode == 0
    made = run("store", "init", "--store", owner)
    assert (made.returncode, "created" in made.stdout) == (0, True), made.stderr


@pytest.mark.parametrize(
    ("taken", "given"),
    [
        ("REVOKE DELETE ON fencepost.proposal FROM {}", "GRANT DELETE ON TABLE fencepost.proposal TO {}"),
        (
            "REVOKE EXECUTE ON FUNCTION fencepost.fp_forget(bigint[]) FROM PUBLIC",
            "GRANT EXECUTE ON FUNCTION fencepost.fp_forget(unused bigint[]) TO {}",
        ),
    ],
)
def test_the_missing_grant_is_named_at_the_start_and_at_ready(
    database: str, tmp_path: Path, role: str, taken: str, given: str
) -> None:
    taken, given = taken.format(role), given.format(role)
    assert run("store", "init", "--store", database).returncode == 0
    execute(database, *documented_grants("cluster.md", "app", role), taken)
    (tmp_path / "objects").mkdir()
    broker = ClusterBrokerProcess(
        tmp_path / "broker", 1, as_role(database, role), tmp_path / "objects", {"metrics.listen": "127.0.0.1:0"}
    )
    with pytest.raises(BrokerFailed):
        broker.start()
    assert given in broker.log()
    assert "Traceback" not in broker.log()
    assert given in run("store", "check", "--store", as_role(database, role)).stdout
    execute(database, given)
    with broker.start():
        page = broker.facts["metrics"]
        until(lambda: ready(page)[0] == 200)
        execute(database, taken, taken.replace("PUBLIC", role))
        until(lambda: ready(page)[0] == 503, seconds=60)
        assert given in ready(page)[1]["reasons"]["database"]
        execute(database, given)
        until(lambda: ready(page)[0] == 200, seconds=60)


def test_brokers_that_start_together_on_an_empty_database_all_serve(database: str, tmp_path: Path) -> None:
    """The second one saw the schema between two migrations, and ended: "schema fencepost has version 1"."""
    import psycopg

    held = 4711
    execute(
        database,
        "CREATE FUNCTION hold() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF to_regclass('fencepost.snapshot') IS NOT NULL THEN PERFORM pg_advisory_xact_lock_shared({held}); END IF;"
        " END $$",
        "CREATE EVENT TRIGGER after_the_first ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION hold()",
    )
    waiting = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    (tmp_path / "objects").mkdir()
    brokers = [
        ClusterBrokerProcess(tmp_path / f"broker-{number}", number, database, tmp_path / "objects", {})
        for number in (1, 2, 3)
    ]
    with ThreadPoolExecutor() as threads, ExitStack() as running:
        for broker in brokers:
            running.callback(broker.__exit__, None, None, None)
        with psycopg.connect(database, autocommit=True) as holder:
            holder.execute("SELECT pg_advisory_lock(%s)", [held])
            starts = [threads.submit(broker.start) for broker in brokers[:1]]
            until(lambda: execute(database, waiting) == [(1,)], seconds=60)
            starts += [threads.submit(broker.start) for broker in brokers[1:]]
            until(lambda: execute(database, waiting) == [(3,)] or any(one.done() for one in starts), seconds=60)
        for start in starts:
            start.result()
        assert all(broker.facts["role"] in {"active", "standby"} for broker in brokers)
