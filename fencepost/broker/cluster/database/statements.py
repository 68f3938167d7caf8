"""One connection of a broker to PostgreSQL: statements, and what became of each. This module imports psycopg."""

import json
import logging
import os
import socket
import threading
from typing import Any

import psycopg
from psycopg import sql

from fencepost.broker.cluster.database import connection, schema
from fencepost.broker.cluster.database.values import Blobs, BlobsDumper
from fencepost.broker.cluster.engine import (
    Changed,
    ClaimLost,
    Conflict,
    Fenced,
    LogIdTaken,
    SchemaMismatch,
    StillAlive,
    StoreUnavailable,
)
from fencepost.broker.cluster.history import History, Life

logger = logging.getLogger(__name__)


class Statements:
    """A connection that is opened when it is needed, and opened anew after it broke. No statement is tried again. An
    instance may be used by several threads; they wait for one another.

    Raises ValueError if the address is none.
    """

    def __init__(self, conninfo: str, schema: str = "fencepost") -> None:
        self._parameters = connection.parse(conninfo)
        self._schema = schema
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._statements: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._history: History | None = None
        self._interrupted = False
        self._warnings: list[str] = []
        """What the server warned of in the statement that runs."""

    @property
    def place(self) -> str:
        """The database, for messages; without a password."""
        return connection.name_of(self._parameters)

    def close(self) -> None:
        """Close the connection. The engine may be used again."""
        with self._lock:
            self._close()

    def watch(self, history: History) -> None:
        with self._lock:
            self._history = history
            self._close()

    def interrupt(self) -> None:
        """Let a call that waits raise StoreUnavailable at once, and all later ones, too. From any thread."""
        self._interrupted = True
        waiting = self._connection
        try:
            if waiting is not None:
                with socket.socket(fileno=os.dup(waiting.fileno())) as shared:
                    shared.shutdown(socket.SHUT_RDWR)
        except (OSError, psycopg.OperationalError) as error:
            logger.debug("the connection is closed already: %s", error)

    def _run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """One statement, with the schema for each `{}`; its rows.

        The database's position comes with the answer, in the same round trip. Only commits do without it: their
        sequence numbers tell.
        """
        history = self._history
        if history is None or not statement.startswith("SELECT"):
            return self._execute(statement, *parameters)
        known = history.check()
        found = self._execute(f"SELECT found.*, (SELECT {{}}.fp_position()) FROM ({statement}) AS found", *parameters)
        if found:
            history.note(known, found[0][-1])
        return [row[:-1] for row in found]

    def _execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                opened = self._opened()
                self._warnings.clear()
                found = opened.execute(self._prepared(statement), parameters, prepare=True, binary=True).fetchall()
            except psycopg.Error as error:
                raise self._translated(error) from error
            if self._warnings:
                # As after a broken connection: a new session tells, once its own commit succeeds without a warning.
                self._close()
                raise StoreUnavailable(f"{self.place} warned, so it is uncertain what is durable: {self._warnings[0]}")
            return found

    def _control(self, command: bytes) -> None:
        with self._lock:
            try:
                self._opened().execute(command)
            except psycopg.Error as error:
                raise self._translated(error) from error

    def _opened(self) -> "psycopg.Connection[tuple[Any, ...]]":
        if self._interrupted:
            raise StoreUnavailable(f"{self.place} is not asked any more: the broker stops")
        if self._history is not None:
            self._history.check()
        if self._connection is None or self._connection.closed:
            opened = connection.connect(self._parameters)
            try:
                schema.check_version(opened, self._schema)
                opened.execute("SET client_min_messages = warning")
                opened.add_notice_handler(self._note)
                self._compare(opened)
            except BaseException:
                opened.close()
                raise
            opened.adapters.register_dumper(Blobs, BlobsDumper)
            self._connection = opened
        return self._connection

    def _compare(self, opened: "psycopg.Connection[tuple[Any, ...]]") -> None:
        """Whether a newly connected database has what the history knows. Raises HistoryLost."""
        history = self._history
        if history is None:
            return
        known = history.check()
        found = opened.execute(self._prepared("SELECT * FROM {}.fp_lives(%s)"), [history.life]).fetchall()
        history.connected([Life(*life) for *life, _ in found], known, found[-1][-1] if found else -1)

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(" ".join(filter(None, (notice.message_primary, notice.message_detail))))

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _prepared(self, statement: str) -> bytes:
        if statement not in self._statements:
            quoted = sql.Identifier(self._schema).as_string(None)
            self._statements[statement] = statement.replace("{}", quoted.replace("%", "%%")).encode()
        return self._statements[statement]

    def _translated(self, error: psycopg.Error) -> Exception:
        message = error.diag.message_primary or str(error)
        detail = error.diag.message_detail or "[]"
        match error.sqlstate:
            case "FP001":
                return Fenced(message)
            case "FP002":
                return Conflict(json.loads(detail))
            case "FP003":
                return ClaimLost(message)
            case "FP004":
                return LogIdTaken(*json.loads(detail))
            case "FP005":
                return StillAlive(*json.loads(detail))
            case "FP006":
                return Changed(message)
            case "42P01" | "42883" | "3F000":  # undefined table, function, schema
                return SchemaMismatch(f"{message}: run `fencepost store check`")
        if connection.is_unavailability(error):
            self._close()
            return connection.unavailable(self._parameters, error)
        return error
