"""A coordinator over memory, started."""

from typing import Any

import pytest
import trio

from tests.unit.txn.kit import World


@pytest.fixture(params=[False, True], ids=["markers wait", "markers at once"])
async def world(request: Any, nursery: trio.Nursery) -> World:
    """Tests that use it also ask for `autojump_clock`, which must be an argument of the test itself.

    Once with tasks that write markers and wait until they are durable, once with nothing to wait for: the rules are
    the same.
    """
    made = World()
    made.cluster.at_once = request.param
    await made.start(nursery)
    return made
