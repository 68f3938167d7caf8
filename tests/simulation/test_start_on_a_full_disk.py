"""A start that finds no room says which write did not fit, and the next one, with room, is a start like any other."""

import errno
import os
from random import Random

import trio

from fencepost.testing.sim_broker import SimBroker
from fencepost.testing.sim_network import SimNetwork
from tests.simulation.weather import SeededWeather


def distrust(broker: SimBroker) -> None:
    """What a life leaves whose flush failed: the next one writes the tail again, before anybody reads it."""
    name = "/data/__cluster_metadata-0/leader-epoch-checkpoint"
    fd = broker.disk.open(name, os.O_WRONLY | os.O_TRUNC, 0o600)
    broker.disk.fsync(fd)
    broker.disk.close(fd)


async def test_its_own_cause_is_named_and_not_what_failed_after_it() -> None:
    """reliability.md, faults of the disk: no space."""
    async with trio.open_nursery() as nursery:
        network = SimNetwork(nursery, SeededWeather(Random(0), ()), lambda event: None)
        broker = SimBroker(nursery, network, Random(0))
        assert await broker.start()
        distrust(broker)
        broker.kill()
        await broker.ended()
        broker.disk.room_bytes = 0
        assert not await broker.start()
        assert isinstance(broker.failure, OSError)
        assert broker.failure.errno == errno.ENOSPC
        assert "checkpoint" not in str(broker.failure), "what failed while it closed hides the cause"
        broker.disk.room_bytes = None
        assert await broker.start()
        nursery.cancel_scope.cancel()
