"""A start that fails says of what, and the next one, on a disk that is well, is a start like any other."""

import errno
from random import Random

import trio

from tests.kit.disk_faults import Fault
from tests.kit.sim_broker import SimBroker
from tests.kit.sim_network import ClearWeather, SimNetwork


async def test_its_own_cause_is_named_and_not_what_failed_after_it() -> None:
    """reliability.md, faults of the disk: no space."""
    async with trio.open_nursery() as nursery:
        network = SimNetwork(nursery, ClearWeather())
        broker = SimBroker(nursery, network, Random(0))
        assert await broker.start()
        broker.kill()
        await broker.ended()
        broker.disk.room_bytes = 0
        broker.disk.faults.append(Fault(0, code=errno.EIO, kinds=("pwrite",)))
        assert not await broker.start()
        assert isinstance(broker.failure, OSError)
        assert broker.failure.errno == errno.EIO, "what failed while it closed hides the cause"
        broker.disk.faults.clear()
        broker.disk.room_bytes = None
        assert await broker.start()
        nursery.cancel_scope.cancel()
