"""A coordinator over memory, started."""

import pytest
import trio

from tests.unit.txn.kit import World


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    """Tests that use it also ask for `autojump_clock`, which must be an argument of the test itself."""
    made = World()
    await made.start(nursery)
    return made
