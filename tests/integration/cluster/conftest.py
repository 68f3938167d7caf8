"""A PostgreSQL server for a module's tests, and a schema for each test."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.kit.postgres_server import PostgresServer, postgres_or_skip

if TYPE_CHECKING:
    from tests.kit.postgres_world import PostgresWorld


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_or_skip() as started:
        yield started


@pytest.fixture
def world(server: PostgresServer) -> "Iterator[PostgresWorld]":
    from tests.kit.postgres_world import PostgresWorld

    database = PostgresWorld(server.conninfo, "fencepost")
    yield database
    database.close()
