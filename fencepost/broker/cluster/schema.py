"""The schema of a cluster's database: its version, and how it is made and brought up to date."""

from collections.abc import Sequence
from importlib import resources
from typing import Any

import psycopg
from psycopg import sql

from fencepost.broker.cluster.engine import SchemaMismatch

ADVISORY_LOCK = 0x66656E63
"""Only one process at a time creates or upgrades a schema."""


def migrations() -> list[str]:
    """The SQL of each version: the first makes a schema, each other one brings that before it up to date."""
    folder = resources.files("fencepost.broker.cluster") / "migrations"
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


def migrate(connection: "psycopg.Connection[Any]", schema: str, version: int, text: str) -> None:
    """Run one migration in one transaction, unless another process was first. Raises psycopg.Error."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [ADVISORY_LOCK])
        if (version_of(connection, schema) or 0) >= version:
            return
        name = sql.Identifier(schema)
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
        # The functions keep this search path: nobody can put an object of the same name before ours.
        connection.execute(sql.SQL("SET LOCAL search_path = {}, pg_catalog, pg_temp").format(name))
        connection.execute(text.encode(), prepare=False)
        connection.execute(sql.SQL("UPDATE {}.cluster SET schema_version = {}").format(name, version))


def upgrade(connection: "psycopg.Connection[Any]", schema: str, texts: Sequence[str] | None = None) -> tuple[int, int]:
    """Run all missing migrations; returns the version before and after. Raises psycopg.Error.

    `texts`: other migrations than those of this fencepost.
    """
    before, texts = version_of(connection, schema) or 0, migrations() if texts is None else texts
    for version, text in enumerate(texts, start=1):
        if version > before:
            migrate(connection, schema, version, text)
    return before, max(before, len(texts))


def create_if_missing(connection: "psycopg.Connection[Any]", schema: str) -> bool:
    """Create the schema in a database that has none; returns whether there was none. Upgrades nothing.

    Raises SchemaMismatch if the role may not create one, and psycopg.Error.
    """
    if version_of(connection, schema) is not None:
        return False
    try:
        upgrade(connection, schema)
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaMismatch(
            f"the database has no schema {schema}, and this role may not create it: run `fencepost store init` with a"
            f" role that may ({error.diag.message_primary})"
        ) from error
    return True
