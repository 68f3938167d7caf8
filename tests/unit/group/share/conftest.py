"""A world with share groups for the tests."""

import pytest
import trio

from tests.unit.group.share.kit import World


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    """A group service over memory, running."""
    made = World()
    await made.service.start()
    await nursery.start(made.service.run)
    return made
