"""A node for the tests of the group handlers."""

import pytest
import trio

from fencepost.coordinator.group.config import GroupConfig
from tests.unit.group.handler_kit import Node
from tests.unit.group.kit import World


@pytest.fixture
async def node(nursery: trio.Nursery) -> Node:
    """A node without an initial delay, its group service running."""
    node = Node(GroupConfig())
    await nursery.start(node.groups.run)
    return node


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    """A group service over memory, running."""
    world = World()
    await world.service.start()
    await nursery.start(world.service.run)
    return world
