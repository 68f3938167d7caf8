"""What `fencepost store check` finds out about a database: its schema, settings, rights, and speed. Imports psycopg."""

import statistics
import time
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from fencepost.broker.cluster.database import grants
from fencepost.broker.cluster.database import schema as schemas
from fencepost.broker.cluster.engine import SchemaMismatch

SAMPLES = 30
OLDEST_SERVER = 140000
"""PostgreSQL 14, as `server_version_num`: the oldest that its project maintains."""
CONNECTIONS_PER_BROKER = 6
SLOW_COMMIT_MS = 10.0
SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "autovacuum",
    "default_transaction_isolation",
    "statement_timeout",
    "max_connections",
)


class Remark(NamedTuple):
    """Something about the stores that needs attention."""

    wrong: bool
    """Whether records may be lost, or brokers cannot work; otherwise it is advice."""
    text: str
    """What is there, what follows, and what to do."""


class Contents(NamedTuple):
    """What a schema holds; the numbers of rows are those that the last ANALYZE estimated."""

    cluster_id: str | None
    size_bytes: int
    brokers: int
    logs: int
    rows: int
    objects: int


class StoreFacts(NamedTuple):
    """The database as this role sees it."""

    server: str
    """The server's version, as in `15.14`."""
    role: str
    version: int | None
    """The version of the schema; None if it is not there."""
    wanted_version: int
    may_create: bool
    """Whether this role may create the schema."""
    lacking: tuple[grants.Lacking, ...]
    """What this role lacks to be a broker."""
    settings: dict[str, str]
    free_connections: int
    commit_ms: tuple[float, float] | None
    """Median and maximum of a small commit's round trip; None if this role may not commit."""
    contents: Contents | None

    def remarks(self) -> list[Remark]:
        return sorted([*self._of_schema(), *_of_settings(self)], key=lambda remark: not remark.wrong)

    def _of_schema(self) -> list[Remark]:
        if self.lacking:
            return [Remark(True, grants.sentence(self.role, self.lacking))]
        if self.version is None and self.may_create:
            return [Remark(False, "the database has no schema fencepost yet: the first broker creates it")]
        found = []
        mismatch = schemas.mismatch(self.version, "fencepost")
        if mismatch is not None:
            found.append(Remark(True, mismatch))
        if self.version is None:
            found.append(
                Remark(True, f"role {self.role} may not create it: GRANT CREATE ON DATABASE, or use another role")
            )
        return found


def _of_settings(facts: StoreFacts) -> list[Remark]:
    settings, found = facts.settings, []

    def remark(wrong: bool, text: str) -> None:
        found.append(Remark(wrong, text))

    for name, loss in (
        ("fsync", "a crash of the server's machine can damage the whole database"),
        ("full_page_writes", "a crash of the server's machine can damage pages"),
    ):
        if settings[name] == "off":
            remark(True, f"{name} is off: {loss}; set it to on")
    if settings["synchronous_commit"] == "off":
        remark(True, "synchronous_commit is off: a crash of the server loses acknowledged records; set it to on")
    if settings["default_transaction_isolation"] != "read committed":
        remark(True, "default_transaction_isolation has to be 'read committed': ALTER ROLE ... SET it for this role")
    if settings["autovacuum"] == "off":
        remark(True, "autovacuum is off: the tables grow with every commit; set it to on")
    if settings["statement_timeout"] != "0":
        remark(False, "statement_timeout is set: a broker whose first load takes longer cannot start; 0 for this role")
    if facts.free_connections < 2 * CONNECTIONS_PER_BROKER:
        needed = f"each broker opens up to {CONNECTIONS_PER_BROKER}"
        remark(False, f"{facts.free_connections} connections are free, {needed}: raise max_connections")
    if facts.commit_ms is not None and facts.commit_ms[0] > SLOW_COMMIT_MS:
        remark(False, f"a commit takes {facts.commit_ms[0]:.1f} ms: every acknowledgement waits for one; move closer")
    return found


def gather(connection: "psycopg.Connection[Any]", schema: str) -> StoreFacts:
    """Ask the server; changes nothing. Raises psycopg.Error."""
    (server, number, role, may_create, free) = _one(
        connection,
        "SELECT current_setting('server_version'), current_setting('server_version_num')::integer, current_user,"
        " coalesce((SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s),"
        " has_database_privilege(current_database(), 'CREATE')), current_setting('max_connections')::integer"
        " - current_setting('superuser_reserved_connections')::integer"
        " - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::integer",
        schema,
    )
    if number < OLDEST_SERVER:
        raise SchemaMismatch(f"the server is PostgreSQL {server}, fencepost needs 14 or newer: use a newer server")
    settings = {name: str(_one(connection, "SELECT current_setting(%s)", name)[0]) for name in SETTINGS}
    missing = grants.lacking(connection, schema)
    version = None if missing else schemas.version_of(connection, schema)
    return StoreFacts(
        server=server.split()[0],
        role=role,
        version=version,
        wanted_version=len(schemas.migrations()),
        may_create=may_create,
        lacking=tuple(missing),
        settings=settings,
        free_connections=free,
        commit_ms=commit_ms(connection),
        contents=None if version is None else _contents(connection, schema),
    )


def commit_ms(connection: "psycopg.Connection[Any]", samples: int = SAMPLES) -> tuple[float, float] | None:
    """Median and maximum of a commit that reaches the server's disk, and changes no table."""
    times = []
    try:
        for _ in range(samples):
            began = time.perf_counter()
            connection.execute("SELECT pg_logical_emit_message(true, 'fencepost', 'check')")
            times.append((time.perf_counter() - began) * 1000)
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction):
        return None
    return statistics.median(times), max(times)


def living_brokers(connection: "psycopg.Connection[Any]", schema: str, idle_ms: int) -> list[int]:
    """The brokers that renewed their leases in the last `idle_ms`. Raises psycopg.Error."""
    found = connection.execute(
        sql.SQL(
            "SELECT id FROM {}.broker WHERE NOT has_left"
            " AND seen > clock_timestamp() - %s * interval '1 ms' ORDER BY id"
        ).format(sql.Identifier(schema)),
        [idle_ms],
    )
    return [broker for (broker,) in found]


def _contents(connection: "psycopg.Connection[Any]", schema: str) -> Contents:
    name = sql.Identifier(schema)
    counts = sql.SQL(
        "SELECT (SELECT id FROM {0}.cluster),"
        " (SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relnamespace = %s::regnamespace"
        " AND relkind = 'r'), (SELECT count(*) FROM {0}.broker), (SELECT count(*) FROM {0}.head),"
        " (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = %s::regclass),"
        " (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = %s::regclass)"
    ).format(name)
    quoted = name.as_string(None)
    found = connection.execute(counts, [quoted, f"{quoted}.entry", f"{quoted}.object"]).fetchone()
    assert found is not None
    return Contents(*found)


def _one(connection: "psycopg.Connection[Any]", statement: str, *parameters: object) -> tuple[Any, ...]:
    found = connection.execute(statement.encode(), parameters).fetchone()
    assert found is not None, "the statement has one row"
    return tuple(found)
