"""The database of a cluster in PostgreSQL, for tests: this module imports psycopg."""

from collections.abc import Sequence
from typing import Any

import psycopg

from fencepost.broker.cluster.database import connection
from fencepost.broker.cluster.database.postgres import PostgresEngine
from fencepost.broker.cluster.database.schema import upgrade


class PostgresWorld:
    """A schema of its own on a server."""

    def __init__(self, conninfo: str, schema: str) -> None:
        self.conninfo = conninfo
        self.schema = schema
        self._last_object = 0
        self._engines: list[PostgresEngine] = []
        self._starts = 0
        self._connection = self._connect()
        upgrade(self._connection, schema)

    def connect_again(self) -> None:
        """After the server was started again."""
        self._connection.close()
        self._connection = self._connect()

    def engine(self) -> PostgresEngine:
        self._engines.append(PostgresEngine(self.conninfo, self.schema, self._next_ids))
        return self._engines[-1]

    def _next_ids(self, count: int) -> int:
        """Ids as those of the specification, for tests that compare both."""
        self._last_object += count
        return self._last_object - count + 1

    def age(self, ms: int) -> None:
        self.execute("UPDATE {}.broker SET seen = seen - %s * interval '1 ms'", ms)
        self.execute("UPDATE {}.object SET claimed_at = claimed_at - %s * interval '1 ms'", ms)

    def save(self) -> None:
        for table in self._tables():
            self.execute(f"DROP TABLE IF EXISTS pg_temp.{table}")
            self.execute(f"CREATE TEMPORARY TABLE {table} AS TABLE {{}}.{table}")

    def go_back(self) -> None:
        for table in self._tables():
            self.execute(f"TRUNCATE {{}}.{table}")
            self.execute(f"INSERT INTO {{}}.{table} OVERRIDING SYSTEM VALUE TABLE pg_temp.{table}")
        self.start_again()

    def start_again(self) -> None:
        """What brokers see of a start: broken connections, and another time of the start."""
        self._starts += 1
        self.execute("UPDATE {}.life SET server = %s", f"start {self._starts}")
        self.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )

    def _tables(self) -> list[str]:
        found = self.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", self.schema)
        return [str(name) for (name,) in found]

    def execute(self, statement: str, *parameters: object) -> Sequence[tuple[Any, ...]]:
        """Run a statement with the schema for `{}`; its rows."""
        name = f'"{self.schema}"'.replace("%", "%%")
        cursor = self._connection.execute(statement.replace("{}", name).encode(), parameters)
        return cursor.fetchall() if cursor.description is not None else []

    def close(self) -> None:
        """End all connections, and delete the schema."""
        for engine in self._engines:
            engine.close()
        self.execute("SET client_min_messages = warning")
        self.execute("DROP SCHEMA {} CASCADE")
        self._connection.close()

    def _connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        return connection.connect(connection.parse(self.conninfo))
