"""Changes how many cores there are, while they run. Core 0 does it; the supervisor starts and stops processes.

    more     the supervisor starts the new cores; when all answer, one change of the metadata registers them, and begins
             the moves to them
    fewer    one change of the metadata begins the moves away; cores that lead nothing any more are unregistered, and
             the supervisor stops them

What is wanted is in memory that outlives the process of core 0, which goes on after a crash. After a crash of all, the
next start has a number of its own.
"""

import logging
import math
import os

import trio

from fencepost.broker.cores.layout import Layout
from fencepost.broker.cores.live_moves import OtherCores
from fencepost.broker.cores.placed import registrations
from fencepost.broker.ports import Broker
from fencepost.coordinator.metadata.several_brokers import resize
from fencepost.coordinator.ports import LogWriteFailed

RETRY_SECONDS = 0.1
"""Between two looks at all partitions, and two tries to reach a new core."""
MOST_PER_PROCESSOR, LEAST_MOST = 2, 16
"""A request may not have more processes started: without an authorizer, everybody may send it."""
PAUSE_SECONDS = 5.0
"""Until the next try, if the metadata cannot be changed."""

logger = logging.getLogger(__name__)


class NumberOfCores:
    """How many cores there are, and are to be. Keep `run` running."""

    def __init__(self, node: Broker, layout: Layout, others: OtherCores) -> None:
        self._node = node
        self._layout = layout
        self._others = others
        self._woken = trio.Event()

    def wake(self) -> None:
        """Partitions have moved, or were created or deleted: there may be more to do."""
        self._woken.set()

    async def change(self, count: int) -> str | None:
        """Begin to change the number of cores, also while another change is under way. Returns why that cannot be."""
        layout = self._layout
        if count < 1:
            return f"{count} cores cannot serve: at least 1 is needed"
        most = max(LEAST_MOST, MOST_PER_PROCESSOR * (os.cpu_count() or 1), layout.registered)
        if count > most:
            return f"{count} cores are more than the {most} that a request may ask for: start with --cores {count}"
        try:
            await trio.to_thread.run_sync(layout.need_ports, count)
        except (OSError, ValueError) as error:
            return str(error)
        logger.info("the number of cores changes from %d to %d", layout.registered, count)
        layout.tell_cores(wanted=count)
        self.wake()
        return None

    async def run(self) -> None:
        """Until cancelled. Raises OSError if the process must end."""
        while True:
            self._woken = trio.Event()
            with trio.move_on_after(await self._go_on()):
                await self._woken.wait()
            await trio.sleep(RETRY_SECONDS)  # many partitions move in a row, and each look goes over all of them

    async def _go_on(self) -> float:
        """Returns after how many seconds there is more to do, if nothing wakes it until then."""
        layout, metadata = self._layout, self._node.metadata
        wanted = layout.ids(layout.wanted)
        new = [one for one in wanted if one not in metadata.image.brokers]
        for one in new:
            if not await self._others.is_up(one):
                return 0.0
        if metadata.image.brokers.keys() != set(wanted) or metadata.facts.brokers != wanted:
            try:
                await resize(metadata, registrations(map(layout.config, new)), wanted)
            except LogWriteFailed as error:
                logger.error("the number of cores cannot change to %d yet cause=%s", len(wanted), error)
                return PAUSE_SECONDS
        registered = max(metadata.image.brokers) - self._node.config.node_id + 1
        if registered != layout.registered:
            layout.tell_cores(registered=registered)
        return math.inf
