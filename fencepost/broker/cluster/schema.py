"""The schema of a cluster's database: its version, and how it is made and brought up to date."""

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
    if connection.execute("SELECT to_regclass(%s)", [table.as_string(None)]).fetchone() == (None,):
        return None
    found = connection.execute(sql.SQL("SELECT schema_version FROM {}").format(table)).fetchone()
    return None if found is None else int(found[0])


def check_version(connection: "psycopg.Connection[Any]", schema: str) -> None:
    """Raises SchemaMismatch unless this version of fencepost made or upgraded the schema; and psycopg.Error."""
    found, wanted = version_of(connection, schema), len(migrations())
    if found is None:
        raise SchemaMismatch(f"the database has no schema {schema}: run `fencepost store init`")
    if found < wanted:
        raise SchemaMismatch(
            f"schema {schema} has version {found}, this fencepost needs {wanted}: stop all brokers,"
            " run `fencepost store upgrade`"
        )
    if found > wanted:
        raise SchemaMismatch(
            f"schema {schema} has version {found}, this fencepost knows {wanted} at most: install a newer fencepost"
        )


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


def upgrade(connection: "psycopg.Connection[Any]", schema: str) -> tuple[int, int]:
    """Run all missing migrations; returns the version before and after. Raises psycopg.Error."""
    before, texts = version_of(connection, schema) or 0, migrations()
    for version, text in enumerate(texts, start=1):
        if version > before:
            migrate(connection, schema, version, text)
    return before, max(before, len(texts))
