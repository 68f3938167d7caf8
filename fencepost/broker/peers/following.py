"""Following the metadata log: what every broker does that is not the controller."""

import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from fencepost.broker.place import Place
from fencepost.broker.ports import Broker
from fencepost.coordinator.metadata.image import METADATA_VERSION
from fencepost.coordinator.ports import LogWriteFailed
from fencepost.protocol.topics import TopicPartition

FOLLOW_SECONDS = 0.1
"""How often a broker looks for new metadata; in a cluster also for free slots, and for other brokers."""

logger = logging.getLogger(__name__)


class MetadataFollower:
    """Reads what the controller writes."""

    def __init__(
        self,
        place: Place,
        read: Callable[[Broker], Awaitable[bool]],
        wait: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`read` makes the new records readable and returns whether there are any. `wait` returns when to look; None:
        every FOLLOW_SECONDS.
        """
        self._place = place
        self._read = read
        self._wait = wait or partial(trio.sleep, FOLLOW_SECONDS)
        self._read_at = -math.inf
        """When the last look at the log began."""
        self.lock = trio.Lock()
        """Held while the log is read."""

    async def catch_up(self, node: Broker) -> None:
        """Read what the controller has written until now. Requests that come meanwhile share one look."""
        since = trio.current_time()
        async with self.lock:
            if self._read_at <= since:
                began = trio.current_time()
                await self.read_to_end(node)
                self._read_at = began

    async def read_to_end(self, node: Broker) -> None:
        """As `catch_up`, for a caller that holds `lock`: until it gives that back, nothing more is read."""
        while not self._place.is_controller and await self._read(node):
            await node.metadata.follow()

    async def until_bootstrapped(self, node: Broker) -> None:
        """Return when the cluster has metadata: its first controller writes them."""
        while METADATA_VERSION not in node.metadata.image.features:
            await trio.sleep(FOLLOW_SECONDS)
            await self.catch_up(node)

    def begin(self, node: Broker, services: trio.Nursery) -> None:
        """Follow the metadata."""
        services.start_soon(self._run, node)
        for runtime in node.runtimes:
            leave_to_others(node, runtime.topic)

    async def _run(self, node: Broker) -> None:
        while True:
            await self._wait()
            await self.catch_up(node)


def leave_to_others(node: Broker, topic: str) -> None:
    """Of an internal topic coordinate nothing that this broker does not lead: NOT_COORDINATOR sends clients away."""
    if node.metadata.topic_id(topic) is None:
        return
    for runtime in node.runtimes:
        for partition in range(runtime.count if runtime.topic == topic else 0):
            if not node.partitions.leads(TopicPartition(topic, partition)):
                runtime.unload(partition)


async def become_controller(node: Broker, epoch: int) -> None:
    """Change the metadata from now on, in place of another broker. The log must have been followed to its end."""
    log = node.metadata_log
    log.leader_epoch = epoch
    log.epochs.note(epoch, log.log_end_offset)
    try:
        await node.metadata.take_over()
    except LogWriteFailed as error:
        logger.warning("this broker could not become the controller: %s", error)
    else:
        await node.register()
