"""A whole broker in this process, over a simulated disk, clock and network; it can be killed at any moment."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import trio

from fencepost.broker.config.broker_config import BrokerConfig, load_config
from fencepost.broker.log.storage.descriptor_pool import DescriptorPool
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.node import Node
from tests.kit.disk_nodes import Fate
from tests.kit.sim_clock import SimClock
from tests.kit.sim_disk import SimDisk
from tests.kit.sim_flush import SimFlushes
from tests.kit.sim_network import SimNetwork

DATA_PATH = Path("/data")
FLUSH_SECONDS = 0.002
SETTINGS: Mapping[str, str] = {
    "storage": "memory",
    "cluster.id": "simulated-cluster-0001",
    "listeners": "PLAINTEXT://sim:9092",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.enable": "false",
}
"""Few internal partitions, so that a start is short; no data directory: the store below is handed in. The cleaner works
in threads, which virtual time does not know; what a power cut does to it is tested on its own."""

logger = logging.getLogger(__name__)


def sim_config(settings: Mapping[str, str] | None = None) -> BrokerConfig:
    """A broker's configuration for a simulation, by Kafka's names."""
    merged = {**SETTINGS, **(settings or {})}
    return load_config(assignments=[f"{name}={value}" for name, value in merged.items()])


def filter_of(seed: int) -> dict[str, str]:
    """In a third of the worlds the broker leaves aborted records out, not the client (row I4)."""
    return {"read.committed.filter": "client" if seed % 3 else "broker"}


class SimBroker:
    """One broker and its lives. `start` may be called again after `kill`, `power_cut` or a death of its own."""

    def __init__(
        self,
        nursery: trio.Nursery,
        network: SimNetwork,
        random: Random,
        config: BrokerConfig | None = None,
        flush_seconds: Callable[[], float] = lambda: FLUSH_SECONDS,
        flush_order: Random | None = None,
    ) -> None:
        self.disk = SimDisk()
        self.clock = SimClock()
        self.network = network
        self.config = config or sim_config()
        self.flush_seconds = flush_seconds
        self.flush_order = flush_order
        self.node: Node | None = None
        """The broker while it lives."""
        self.lives = 0
        """How often it was started."""
        self.started_at = 0.0
        """trio's time of the last start."""
        self.failure: BaseException | None = None
        """What the last life died of, where nobody killed it."""
        self._nursery = nursery
        self._random = random
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._ended.set()

    async def start(self) -> bool:
        """Start it over what is on the disk; False when it died in the attempt, of `failure` or because of a `kill`."""
        assert self.node is None, "it lives"
        await self._ended.wait()
        ended, scope = self._ended, self._scope = trio.Event(), trio.CancelScope()
        self.failure = None
        self.lives += 1
        try:
            node = self.make_node(self.disk)
        except Exception as error:  # noqa: BLE001, the process would end of it, whatever it is
            self._die(error)
            ended.set()
            return False
        if scope.cancel_called:
            ended.set()
        else:
            ready = trio.Event()
            self._nursery.start_soon(self._live, node, scope, ready, ended)
            await ready.wait()
        if scope.cancel_called or self.failure is not None:
            return False
        self.started_at = trio.current_time()
        self.node = node
        assert node.server is not None
        self.network.attach(node.server)
        return True

    def make_node(self, disk: SimDisk) -> Node:
        """A broker over any disk, of the same settings and on the same clock, that nobody can reach.

        Raises what a `Node` raises.
        """
        store = FileStore(DATA_PATH, DescriptorPool(64), disk=disk)
        store.make()
        return Node(
            self.config,
            self.clock,
            self._random.randbytes,
            store=store,
            threads=SimFlushes(self.flush_seconds, self.flush_order),
            listening=False,
        )

    async def _live(self, node: Node, scope: trio.CancelScope, ready: trio.Event, ended: trio.Event) -> None:
        """One life, to its last task."""
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(node.run)
                    ready.set()
        except Exception as error:  # noqa: BLE001, as above
            if not scope.cancel_called:
                self._die(error)
        finally:
            ready.set()
            ended.set()

    def _die(self, error: Exception) -> None:
        logger.info("the broker died: %r", error)
        self.failure = error
        self._gone(self._killed())

    def _killed(self) -> SimDisk:
        return self.disk.kill()

    # Deaths

    def kill(self) -> None:
        """Kill -9, this very moment: what it wrote is in the page cache, and no answer leaves any more."""
        self._gone(self._killed())

    def power_cut(self, fate: Fate) -> None:
        """The power goes: what was not synced is left as `fate` says."""
        self._gone(self.disk.power_cut(fate, self._random.getrandbits(32)))

    def _gone(self, disk: SimDisk) -> None:
        disk.faults, disk.now_ms, disk.room_bytes = [], self.clock.now_ms(), self.disk.room_bytes
        self.disk = disk
        self.node = None
        self.network.detach()
        self._scope.cancel()

    async def stop(self) -> None:
        """End it in order."""
        if self.node is not None:
            self.node.stop()
            await self._ended.wait()
            self.node = None
            self.network.detach()

    async def ended(self) -> None:
        """Return when the last life is over to its last task."""
        await self._ended.wait()
