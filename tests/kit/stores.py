"""Where the broker processes of tests keep their logs: `FENCEPOST_ENGINE=cluster` gives each a database and objects.

    FENCEPOST_ENGINE=cluster make test ARGS="tests/interop tests/spark"

`FENCEPOST_ENGINE=cores` runs each on files with three cores, `cores:2` with two; only real clients find their leaders
then.
Else they keep files, or everything in memory. One PostgreSQL server serves all brokers of a test process.
"""

import atexit
import os
import secrets
from functools import cache
from pathlib import Path

import pytest

from tests.kit.postgres_server import PostgresServer, postgres_or_skip

_ENGINE = os.environ.get("FENCEPOST_ENGINE", "files")
ON_CLUSTER = _ENGINE == "cluster"
CORES = int(_ENGINE.partition(":")[2] or 3) if _ENGINE.startswith("cores") else 1
"""The cores of each broker."""
WITHOUT_ENGINE = {"FENCEPOST_ENGINE": None}
"""The environment of commands in the process of a test, which would take the variable for a setting of the broker."""
LEASE_MS = 1500
"""A broker that was killed joins again only when its lease has ended."""


def needs_files(reason: str) -> pytest.MarkDecorator:
    """Skip a test where brokers have no directory of their own."""
    return pytest.mark.skipif(
        ON_CLUSTER or CORES > 1, reason=f"this broker does not have all in one data directory: {reason}"
    )


def alone(reason: str) -> pytest.MarkDecorator:
    """Skip a test where each core is a broker of its own to clients."""
    return pytest.mark.skipif(CORES > 1, reason=f"a broker of several cores is several to clients: {reason}")


def new_stores(work_dir: Path, server: PostgresServer | None = None) -> list[str]:
    """Options of `fencepost serve`: a new database, and a new directory of objects in `work_dir`."""
    import psycopg

    from fencepost.broker.cluster.database.schema import upgrade

    server = _server() if server is None else server
    database = f"cluster_{secrets.token_hex(4)}"
    store = server.conninfo.replace("dbname=postgres", f"dbname={database}")
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{database}"'.encode())
    with psycopg.connect(store, autocommit=True) as connection:
        upgrade(connection, "fencepost")
    objects = work_dir / "objects"
    objects.mkdir(parents=True)
    return ["--store", store, "--objects", f"file://{objects}", "--set", f"cluster.lease.ms={LEASE_MS}"]


@cache
def _server() -> PostgresServer:
    server = postgres_or_skip()
    atexit.register(server.__exit__, None, None, None)
    return server.__enter__()
