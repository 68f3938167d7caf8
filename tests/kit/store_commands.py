"""`fencepost store` and `fencepost verify --store` as processes, databases for them, and dumps."""

import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.kit.postgres_server import PostgresServer, find_binaries

SECONDS = 100


def empty_database(server: PostgresServer) -> str:
    """The address of a new database."""
    import psycopg

    name = f"empty_{secrets.token_hex(4)}"
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    return server.conninfo.replace("dbname=postgres", f"dbname={name}")


def as_role(address: str, role: str) -> str:
    """The address, for another role."""
    return address.replace("user=postgres", f"user={role}")


def begin(*words: str, environment: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
    """Start a command that needs no broker."""
    return subprocess.Popen(
        [sys.executable, "-m", "fencepost", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )


def run(*words: str, environment: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command that needs no broker."""
    process = begin(*words, environment=environment)
    out, err = process.communicate(timeout=SECONDS)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def dump(address: str, file: Path) -> None:
    """Write a dump of a database to a file."""
    _postgres_tool("pg_dump", "--format=custom", "--file", str(file), "--dbname", address)


def restore(file: Path, address: str) -> None:
    """Restore a dump into an empty database."""
    _postgres_tool("pg_restore", "--exit-on-error", "--dbname", address, str(file))


def _postgres_tool(program: str, *words: str) -> None:
    binaries = find_binaries()
    assert binaries is not None
    if not (binaries / program).exists():
        pytest.skip(f"no {program} beside initdb (apt-get install postgresql-client)")
    done = subprocess.run([binaries / program, *words], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
