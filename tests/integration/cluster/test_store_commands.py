"""`fencepost store init|check|upgrade` against a real PostgreSQL, as processes."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.broker_process import BrokerFailed
from tests.kit.cluster_processes import ClusterBrokerProcess
from tests.kit.postgres_server import PostgresServer
from tests.kit.s3_server import S3Server
from tests.kit.store_commands import as_role, begin, empty_database, run
from tests.kit.waiting import until

SECRET = "4711secret"


@pytest.fixture
def database(server: PostgresServer) -> str:
    return empty_database(server)


def execute(address: str, *statements: str) -> list[tuple[object, ...]]:
    """The rows of the last statement."""
    import psycopg

    with psycopg.connect(address, autocommit=True, client_encoding="utf8") as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description is not None else []


def test_init_creates_the_schema_once_and_check_says_so(database: str) -> None:
    before = run("store", "check", "--store", database)
    assert before.returncode == 0, "an empty database is well: the first broker fills it"
    assert "advice: the database has no schema fencepost yet: the first broker creates it" in before.stdout
    first = run("store", "init", "--store", database, "--json")
    assert (first.returncode, json.loads(first.stdout)["created"]) == (0, True), first.stderr
    again = run("store", "init", "--store", database)
    assert (again.returncode, "is there" in again.stdout) == (0, True)
    checked = run("store", "check", "--store", database)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "brokers can work with this database" in checked.stdout
    facts = json.loads(run("store", "check", "--store", database, "--json").stdout)
    assert facts["version"] == facts["wanted_version"]
    assert facts["settings"]["fsync"] == "on"
    assert 0 < facts["commit_ms"][0] <= facts["commit_ms"][1]
    assert facts["contents"]["brokers"] == 0


def test_of_two_at_once_one_waits(database: str) -> None:
    import psycopg

    from fencepost.broker.cluster.database.schema import ADVISORY_LOCK

    waiting = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with psycopg.connect(database, autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", [ADVISORY_LOCK])
        both = [begin("store", "init", "--store", database, "--json") for _ in range(2)]
        until(lambda: execute(database, waiting) == [(2,)])
    answers = [one.communicate(timeout=100) for one in both]
    assert [one.returncode for one in both] == [0, 0], answers
    assert run("store", "check", "--store", database).returncode == 0


def test_upgrade_runs_what_is_missing_and_not_while_a_broker_runs(database: str) -> None:
    import psycopg

    from fencepost.broker.cluster.database.schema import migrations, upgrade

    with psycopg.connect(database, autocommit=True, client_encoding="utf8") as connection:
        assert upgrade(connection, "fencepost", migrations()[:1]) == (0, 1)
        newer = [*migrations(), "CREATE TABLE added (one integer)"]
        assert upgrade(connection, "fencepost", newer) == (1, len(newer))
        assert connection.execute("SELECT count(*) FROM fencepost.added").fetchone() == (0,)
    too_new = run("store", "upgrade", "--store", database)
    assert too_new.returncode == 1
    assert "install a newer fencepost" in too_new.stderr
    execute(
        database,
        "UPDATE fencepost.cluster SET schema_version = 0",
        "INSERT INTO fencepost.broker VALUES (7, 1, 1, 0, '{}', clock_timestamp(), false, '')",
    )
    refused = run("store", "upgrade", "--store", database)
    assert (refused.returncode, "brokers run: 7" in refused.stderr) == (1, True), refused.stderr
    execute(database, "UPDATE fencepost.broker SET has_left = true", f"{set_version()} {len(migrations())}")
    done = run("store", "upgrade", "--store", database)
    assert (done.returncode, "is the newest" in done.stdout) == (0, True), done.stderr


def set_version() -> str:
    return "UPDATE fencepost.cluster SET schema_version ="


@pytest.mark.parametrize(("version", "words"), [(0, "fencepost store upgrade"), (99, "install a newer fencepost")])
def test_a_broker_says_what_to_do_about_another_version(
    database: str, tmp_path: Path, version: int, words: str
) -> None:
    assert run("store", "init", "--store", database).returncode == 0
    execute(database, f"{set_version()} {version}")
    checked = run("store", "check", "--store", database)
    assert (checked.returncode, words in checked.stdout) == (1, True), checked.stdout
    (tmp_path / "objects").mkdir()
    broker = ClusterBrokerProcess(tmp_path / "broker", 1, database, tmp_path / "objects", {})
    with pytest.raises(BrokerFailed):
        broker.start()
    assert words in broker.log()
    assert "Traceback" not in broker.log()


def test_a_broker_creates_the_schema_of_an_empty_database(database: str, tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    with ClusterBrokerProcess(tmp_path / "broker", 1, database, tmp_path / "objects", {}) as broker:
        assert broker.facts["role"] in {"active", "standby"}
        assert "created the schema of a new cluster" in broker.log()


def test_a_role_without_rights_learns_which_ones(server: PostgresServer, database: str, tmp_path: Path) -> None:
    role = f"app_{secrets.token_hex(4)}"
    execute(database, f"CREATE ROLE {role} LOGIN")
    app = as_role(database, role)
    refused = run("store", "init", "--store", app)
    assert (refused.returncode, "may not create it" in refused.stderr) == (1, True), refused.stderr
    (tmp_path / "objects").mkdir()
    broker = ClusterBrokerProcess(tmp_path / "broker", 1, app, tmp_path / "objects", {})
    with pytest.raises(BrokerFailed):
        broker.start()
    assert "may not create it" in broker.log()
    assert run("store", "init", "--store", database).returncode == 0
    assert "lacks USAGE on schema fencepost" in run("store", "check", "--store", app).stdout
    execute(
        database,
        f"GRANT USAGE ON SCHEMA fencepost TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA fencepost TO {role}",
        f"REVOKE DELETE ON fencepost.entry FROM {role}",
    )
    assert "lacks DELETE on entry" in run("store", "check", "--store", app).stdout
    execute(database, f"GRANT DELETE ON fencepost.entry TO {role}")
    assert run("store", "check", "--store", app).returncode == 0
    with broker.start():
        assert broker.facts["role"] in {"active", "standby"}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("synchronous_commit = off", "loses acknowledged records"),
        ("default_transaction_isolation = 'repeatable read'", "has to be 'read committed'"),
    ],
)
def test_dangerous_settings_are_wrong(database: str, setting: str, words: str) -> None:
    name = execute(database, "SELECT current_database()")[0][0]
    execute(database, f'ALTER DATABASE "{name}" SET {setting}')
    checked = run("store", "check", "--store", database)
    assert (checked.returncode, words in checked.stdout) == (1, True), checked.stdout


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (f"postgresql://joe:{SECRET}@127.0.0.1:1/fencepost", "is the server running"),
        (f"postgresql://joe:{SECRET}@nowhere.invalid/fencepost", "the host's name is unknown here"),
        (f"postgresql://joe:{SECRET}@127.0.0.1:port/fencepost", "fencepost:"),
        (f"http://joe:{SECRET}@127.0.0.1/fencepost", "neither postgresql://"),
    ],
)
def test_a_wrong_address_is_explained_and_no_password_is_printed(address: str, words: str) -> None:
    for command in ("init", "check", "upgrade"):
        done = run("store", command, "--store", address)
        assert done.returncode in (1, 2), done.stdout
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        assert SECRET not in done.stdout + done.stderr


def test_a_missing_database_or_role_is_explained(server: PostgresServer) -> None:
    missing = run("store", "init", "--store", server.conninfo.replace("dbname=postgres", "dbname=nowhere"))
    assert (missing.returncode, "createdb" in missing.stderr) == (1, True), missing.stderr
    unknown = run("store", "init", "--store", as_role(server.conninfo, "stranger"), "--json")
    assert "name a role that exists" in json.loads(unknown.stderr)["hint"]
    assert "no database is named" in run("store", "init").stderr


@pytest.mark.parametrize("missing", ["psycopg", "obstore"])
def test_a_missing_extra_is_named(database: str, tmp_path: Path, missing: str) -> None:
    """A package that cannot be imported shadows the installed one."""
    (tmp_path / f"{missing}.py").write_text(f'raise ModuleNotFoundError("No module named {missing!r}")\n')
    environment = {"PYTHONPATH": str(tmp_path)}
    stores = ("--store", database, "--objects", "s3://bucket")
    for words in (("store", "check", *stores), ("serve", *stores, "--listen", "127.0.0.1:0")):
        done = run(*words, environment=environment)
        assert done.returncode in (1, 2), done.stdout
        assert "pip install 'fencepost[cluster]'" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def bucket() -> Iterator[S3Server]:
    with S3Server() as started:
        yield started


def test_objects_are_written_read_listed_and_deleted(database: str, bucket: S3Server, tmp_path: Path) -> None:
    run("store", "init", "--store", database)
    environment = {
        "AWS_ENDPOINT_URL": bucket.endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "FENCEPOST_CLUSTER_STORE": database,
    }
    done = run("store", "check", "--objects", bucket.url, environment=environment)
    assert (done.returncode, "listed, deleted" in done.stdout) == (0, True), done.stdout + done.stderr
    wrong = run("store", "check", "--objects", "s3://nowhere", environment=environment)
    assert (wrong.returncode, "wrong: cannot put" in wrong.stdout) == (1, True), wrong.stdout + wrong.stderr
    (tmp_path / "shared").mkdir()
    settings = tmp_path / "server.properties"
    settings.write_text(f"cluster.store={database}\ncluster.objects=file://{tmp_path}/shared\n")
    done = run("store", "check", "--config", str(settings))
    assert (done.returncode, "listed, deleted" in done.stdout) == (0, True), done.stdout + done.stderr
    assert [path for path in (tmp_path / "shared").rglob("*") if path.is_file()] == []
    missing = run("store", "check", "--store", database, "--objects", f"file://{tmp_path}/none/none")
    assert (missing.returncode, "wrong: cannot create" in missing.stdout) == (1, True), missing.stdout
