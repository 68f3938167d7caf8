"""Scripted brokers for the tests of this folder."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.unit.client.scripted_broker import ScriptedBroker


@pytest.fixture
async def script(nursery: trio.Nursery) -> Callable[..., Any]:
    """Start a scripted broker: `broker = await script(partitions=2)`."""

    async def start(**options: Any) -> ScriptedBroker:
        broker = ScriptedBroker(**options)
        await nursery.start(broker.serve)
        return broker

    return start
