"""One connection to PostgreSQL, as a broker and `fencepost store` open it. This module imports psycopg."""

import os
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from fencepost.broker.cluster.engine import StoreUnavailable

QUICK_TO_NOTICE: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "target_session_attrs": "read-write",
}
"""libpq's settings, where the address does not set them: a dead server is noticed within some seconds, and of several
servers the primary is used. There is no timeout for a statement: a commit that waits for a standby may wait."""
REFUSALS = ("25006", "42501")
"""SQLSTATEs: read-only transaction, insufficient privilege."""
FROM_ENVIRONMENT = {"connect_timeout": "PGCONNECT_TIMEOUT", "target_session_attrs": "PGTARGETSESSIONATTRS"}


def parse(address: str) -> dict[str, Any]:
    """The parameters of an address: `postgresql://...`, or libpq's `name=value ...`. Raises ValueError."""
    try:
        given = conninfo_to_dict(address)
    except psycopg.ProgrammingError:
        # libpq's text may contain a part of the password.
        raise ValueError("the store's address is neither postgresql://USER@HOST:PORT/DATABASE nor name=value") from None
    held = {name for name, variable in FROM_ENVIRONMENT.items() if variable in os.environ}
    return {name: value for name, value in QUICK_TO_NOTICE.items() if name not in held} | given


def connect(parameters: dict[str, Any]) -> "psycopg.Connection[tuple[Any, ...]]":
    """Connect; every statement is a transaction. Raises psycopg.Error."""
    # In a database without an encoding (SQL_ASCII) texts would come as bytes.
    chosen = {"fallback_application_name": "fencepost", "client_encoding": "utf8"}
    return psycopg.connect(autocommit=True, prepare_threshold=0, **parameters | chosen)


def name_of(parameters: dict[str, Any]) -> str:
    """What a message calls the database; without the password."""
    host = parameters.get("host", os.environ.get("PGHOST", "the local socket"))
    port = parameters.get("port", os.environ.get("PGPORT", "5432"))
    database = parameters.get("dbname", os.environ.get("PGDATABASE", "the user's database"))
    return f"PostgreSQL at {host}:{port}/{database}"


def unavailable(parameters: dict[str, Any], error: psycopg.Error) -> StoreUnavailable:
    """What a broken connection, or a server that refuses to work, is to a broker."""
    reason = error.diag.message_primary or str(error)
    return StoreUnavailable(f"{name_of(parameters)}: {' '.join(reason.split())}")


def is_unavailability(error: psycopg.Error) -> bool:
    """Whether the server or the connection failed, or the server refuses to work: a standby only reads, and a role may
    lack rights.
    """
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) or error.sqlstate in REFUSALS
