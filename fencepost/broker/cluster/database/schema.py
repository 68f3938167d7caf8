"""The schema of a cluster's database: its version, and how it is made and brought up to date."""

from collections.abc import Sequence
from importlib import resources
from typing import Any

import psycopg
from psycopg import sql

from fencepost.broker.cluster.database import grants
from fencepost.broker.cluster.engine import SchemaMismatch

ADVISORY_LOCK = 0x66656E63
"""Only one process at a time creates or upgrades a schema."""


def migrations() -> list[str]:
    """The SQL of each version: the first makes a schema, each other one brings that before it up to date."""
    folder = resources.files("fencepost.broker.cluster.database") / "migrations"
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return [(folder / name).read_text(encoding="utf-8") for name in names]


def version_of(connection: "psycopg.Connection[Any]", schema: str) -> int | None:
    """The schema's version; None if it is not there. Raises psycopg.Error."""
    table = sql.Identifier(schema, "cluster")
    # to_regclass() would answer from a cache that may be older than a lock that this transaction waited for.
    there = connection.execute(
        "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = 'cluster'",
        [schema],
    )
    if there.fetchone() is None:
        return None
    found = connection.execute(sql.SQL("SELECT schema_version FROM {}").format(table)).fetchone()
    return None if found is None else int(found[0])


def mismatch(found: int | None, schema: str) -> str | None:
    """What is wrong with this version of the schema, and what to run; None if it is that of this fencepost."""
    wanted = len(migrations())
    if found is None:
        return f"the database has no schema {schema}: run `fencepost store init`"
    if found < wanted:
        return (
            f"schema {schema} has version {found}, this fencepost needs {wanted}: stop all brokers,"
            " run `fencepost store upgrade`"
        )
    if found > wanted:
        return f"schema {schema} has version {found}, this fencepost knows {wanted} at most: install a newer fencepost"
    return None


def check_version(connection: "psycopg.Connection[Any]", schema: str) -> None:
    """Raises SchemaMismatch unless this version of fencepost made or upgraded the schema; and psycopg.Error."""
    wrong = mismatch(version_of(connection, schema), schema)
    if wrong is not None:
        raise SchemaMismatch(wrong)


def upgrade(connection: "psycopg.Connection[Any]", schema: str, texts: Sequence[str] | None = None) -> tuple[int, int]:
    """Run all missing migrations in one transaction; returns the version before and after. Raises psycopg.Error.

    Other processes see the old schema or the new one, never a version between. Of two upgrades at once one waits.

    `texts`: other migrations than those of this fencepost.
    """
    texts = migrations() if texts is None else texts
    with connection.transaction():
        # Each statement has to see what the holder of the lock has committed.
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [ADVISORY_LOCK])
        found = version_of(connection, schema)
        before = found or 0
        if before < len(texts):
            held = [] if found is None else grants.rights(connection, schema)
            _migrate(connection, schema, texts[before:], len(texts), held)
    return before, max(before, len(texts))


def _migrate(
    connection: "psycopg.Connection[Any]", schema: str, texts: Sequence[str], version: int, held: list[grants.Right]
) -> None:
    """Run migrations within the transaction. `held`: the rights on the tables of an older version."""
    name = sql.Identifier(schema)
    if held:
        grants.act_as_owner(connection, schema)
    elif not is_there(connection, schema):
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(name))
    # The functions keep this search path: no other role can put an object of the same name before ours.
    connection.execute(sql.SQL("SET LOCAL search_path = {}, pg_catalog, pg_temp").format(name))
    for text in texts:
        connection.execute(text.encode(), prepare=False)
    connection.execute(sql.SQL("UPDATE {}.cluster SET schema_version = {}").format(name, version))
    if held:
        grants.extend(connection, held, grants.rights(connection, schema))


def is_there(connection: "psycopg.Connection[Any]", schema: str) -> bool:
    """Whether a schema of this name is there, with or without tables. Raises psycopg.Error."""
    return connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [schema]).fetchone() is not None


def create_if_missing(connection: "psycopg.Connection[Any]", schema: str) -> bool:
    """Create the schema in a database that has none; returns whether this call did. Upgrades nothing.

    Raises SchemaMismatch if the role may not create one, and psycopg.Error.
    """
    if version_of(connection, schema) is not None:
        return False
    try:
        before, _ = upgrade(connection, schema)
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaMismatch(
            f"the database has no schema {schema}, and this role may not create it: run `fencepost store init` with a"
            f" role that may ({error.diag.message_primary})"
        ) from error
    return before == 0
