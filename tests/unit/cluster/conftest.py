"""The databases that the rules of `Engine` are checked on."""

from collections.abc import Callable, Iterator

import pytest

from tests.kit.engine_worlds import SimWorld, World
from tests.kit.postgres_server import PostgresServer, postgres_or_skip


@pytest.fixture(scope="session")
def start_postgres() -> Iterator[Callable[[], PostgresServer]]:
    """Start the server of all tests when the first one asks for it; each test has a schema of its own there."""
    started: list[PostgresServer] = []

    def start() -> PostgresServer:
        if not started:
            started.append(postgres_or_skip().__enter__())
        return started[0]

    yield start
    for server in started:
        server.__exit__(None, None, None)


@pytest.fixture(params=["sim", "postgres"])
def world(request: pytest.FixtureRequest, start_postgres: Callable[[], PostgresServer]) -> Iterator[World]:
    if request.param == "sim":
        yield SimWorld()
        return
    server = start_postgres()  # skips the test where there is none
    from tests.kit.postgres_world import PostgresWorld

    database = PostgresWorld(server.conninfo, "fencepost")
    yield database
    database.close()
