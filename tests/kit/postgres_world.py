"""The database of a cluster in PostgreSQL, for tests: this module imports psycopg."""

from collections.abc import Sequence
from typing import Any

import psycopg

from fencepost.broker.cluster import connection
from fencepost.broker.cluster.postgres import PostgresEngine
from fencepost.broker.cluster.schema import upgrade


class PostgresWorld:
    """A schema of its own on a server."""

    def __init__(self, conninfo: str, schema: str) -> None:
        self.conninfo = conninfo
        self.schema = schema
        self._last_object = 0
        self._engines: list[PostgresEngine] = []
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
