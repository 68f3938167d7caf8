"""Cores of one machine in this process: the real `Core` of each, over a simulated network of its own.

If partitions move, all cores have one disk, and lose their power together. Otherwise each has a disk of its own.
"""

import dataclasses
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import trio

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.cores.followed_metadata import FollowedMetadata
from fencepost.broker.cores.layout import Layout, socket_names, waking
from fencepost.broker.cores.listening import CoresListening
from fencepost.broker.cores.place import Core
from fencepost.broker.listeners import configured_addresses, end_points
from fencepost.broker.log.storage.descriptor_pool import DescriptorPool
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.layout import CORES_DIRECTORY
from fencepost.broker.metadata.log import METADATA_PARTITION
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.context import Endpoint, Session
from fencepost.broker.network.server import Server
from fencepost.broker.node import Node
from fencepost.broker.peers.links import ANSWER_SECONDS
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.ports import Broker
from fencepost.broker.security.principal import CLUSTER
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.metadata.ports import LoggedBatch
from fencepost.coordinator.metadata.several_brokers import register_all
from fencepost.coordinator.metadata.start_records import Registration
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.records import decode_records
from tests.kit.determinism import nap
from tests.kit.disk_nodes import Fate, SimDirectory
from tests.kit.sim_broker import DATA_PATH, SimBroker, sim_config
from tests.kit.sim_disk import SimDisk
from tests.kit.sim_flush import SimFlushes
from tests.kit.sim_network import SimNetwork, exchange

FIRST_NODE_ID, FIRST_PORT = 1, 9092
THREAD_SECONDS = 0.003


class SimLayout(Layout):
    """A layout whose directories are on simulated disks."""

    root = DATA_PATH  # type: ignore[assignment]

    def config(self, node_id: int) -> BrokerConfig:
        return self.configs[node_id - FIRST_NODE_ID]


class SimFollowedMetadata(FollowedMetadata):
    """The metadata log of core 0, read from the simulated disk of that core."""

    def __init__(self, layout: Layout, disk_of_controller: Callable[[], SimDisk]) -> None:
        super().__init__(layout)
        self.snapshots = _NoSnapshots()  # type: ignore[assignment]
        self._disk = disk_of_controller
        self._next = 0

    @property
    def end_offset(self) -> int:
        return self._next

    def seek(self, offset: int) -> None:
        self._next = offset

    def read(self) -> Iterator[LoggedBatch]:
        path, end = f"{DATA_PATH}/{METADATA_PARTITION}", self._layout.metadata_end
        disk = self._disk()
        for name in disk.file_names(path) if self._next < end else ():
            if not name.endswith(".log"):
                continue
            data = bytes(disk.file(f"{path}/{name}").data)
            for position, header in iter_headers(data):
                if header.next_offset > end:
                    return
                if header.next_offset > self._next:
                    records = None if header.is_control else decode_records(data, position, header)
                    values = None if records is None else [record.value or b"" for record in records]
                    self._next = header.next_offset
                    yield LoggedBatch(header.base_offset, header.next_offset, header.max_timestamp, values)
                if header.next_offset == end:
                    return


class _NoSnapshots:
    """The log of a simulated controller begins at offset 0."""

    def newest(self) -> MetadataImage | None:
        return None


class SimCoreLinks:
    """The connections of one life of a core to the others; each request has one of its own."""

    def __init__(self, core: "SimCore") -> None:
        self._core = core
        self._life = core.lives
        self._correlation = 0

    async def ask(self, broker: int, request: Any, version: int) -> Any:
        """As `PeerLinks.ask`."""
        core = self._core
        other = core.cores[broker - FIRST_NODE_ID]
        await self._alive()
        try:
            with trio.fail_after(ANSWER_SECONDS):
                call = await other.inner.call(f"core {core.number}")
                try:
                    await self._alive()
                    self._correlation += 1
                    return await exchange(call, self._correlation, version, request, f"core {core.number}")
                finally:
                    call.cut()
        except (OSError, trio.TooSlowError) as error:
            raise PeerUnavailable(f"broker {broker} does not answer: {error}") from error

    async def _alive(self) -> None:
        """A core that was killed sends nothing, also if a task of its has not been cancelled yet."""
        if not self._core.is_up or self._core.lives != self._life:
            await trio.sleep_forever()

    def close(self) -> None:
        """Nothing is kept."""


class _Place(Core):
    """A core whose logs and neighbours are simulated."""

    def __init__(self, core: "SimCore", layout: Layout, store: FileStore) -> None:
        super().__init__(layout, core.number)
        self._store, self.has_files, self.outlives_process = store, True, True
        self.links = SimCoreLinks(core)  # type: ignore[assignment]
        if self.followed_metadata is not None:
            self.followed_metadata = SimFollowedMetadata(layout, lambda: core.cores[0].disk)

    def listenings(self) -> list[CoresListening]:
        return []  # connections of other cores are adopted

    async def _stop_with_supervisor(self, node: Broker) -> None:
        """The supervisor never ends."""


class _ForCores:
    """The server of a core, for connections of other cores: they have logged in."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def adopt(self, sock: Any, peer: Endpoint, listener: Endpoint) -> None:
        server = self._server
        assert server._nursery is not None
        if server.draining:
            sock.close()
        elif server._may_begin(sock, peer):
            server._start(Connection(server, sock, peer, Session(peer.host, listener, CLUSTER)), server._nursery)


class SimCore(SimBroker):
    """One core and its lives. Clients reach it by `network`, the other cores by `inner`."""

    def __init__(self, cores: "SimCores", number: int, inner: SimNetwork, *words: Any) -> None:
        super().__init__(*words)
        self.number = number
        self.inner = inner
        self.cores: Sequence[SimCore] = cores.members
        self.down_seconds = 0.0
        """How long it stays down after its next death."""
        self.is_up = False
        """Whether its process runs; it may still be starting."""
        self.machine = cores
        self.path = DATA_PATH
        if cores.disk is not None:
            self.disk = SimDisk(cores.disk)
            self.path = core_path(number)

    async def start(self) -> bool:
        alive = await super().start()
        if alive:
            assert self.node is not None
            assert self.node.server is not None
            self.inner.attach(_ForCores(self.node.server))  # type: ignore[arg-type]
        return alive

    def make_node(self, disk: SimDisk) -> Node:
        store = FileStore(self.path, DescriptorPool(64), disk=disk)
        store.make()
        self.is_up = True
        return Node(
            self.config,
            self.clock,
            self._random.randbytes,
            threads=SimFlushes(self.flush_seconds, self.flush_order),
            listening=False,
            place=_Place(self, self.machine.layout_of_next_start(), store),
        )

    def _killed(self) -> SimDisk:
        return self.disk.kill() if self.machine.disk is None else self.disk.kill_one()

    def power_cut(self, fate: Fate) -> None:
        """Of this core alone if it has a disk of its own, otherwise of all cores."""
        if self.machine.disk is None:
            super().power_cut(fate)
        else:
            self.machine.disk = self.machine.disk.survivor(fate, Random(self._random.getrandbits(32)))
            for core in self.machine.members:
                core._gone(SimDisk(self.machine.disk))
            self.machine.forget_metadata_end()

    def _gone(self, disk: SimDisk) -> None:
        self.is_up = False
        self.inner.detach()
        super()._gone(disk)

    async def stop(self) -> None:
        await super().stop()
        self.is_up = False
        self.inner.detach()


class SimCores:
    """The cores, and what their supervisor keeps: the layout, and the number of the last start."""

    def __init__(self, settings: Mapping[str, str], count: int, one_disk: bool = False) -> None:
        """Make the layout; `members` are added by the caller, as many as there are configurations."""
        self.disk = SimDirectory() if one_disk else None
        """That of all cores, if they have one."""
        self.configs = tuple(_config(settings, number) for number in range(count))
        self.members: list[SimCore] = []
        names = socket_names()
        self.layout = SimLayout(
            self.configs,
            b"secret",
            names,
            None,
            mmap.mmap(-1, mmap.PAGESIZE),
            wakes=tuple(waking(f"{names}{number}-wake") for number in range(count)),
        )
        self.layout.tell_cores(wanted=count, registered=count)
        self.starts = 0
        """The file `core-starts`: durable before a core starts."""

    def layout_of_next_start(self) -> Layout:
        return dataclasses.replace(self.layout, start=self.next_start())

    def next_start(self) -> int:
        """As `layout.next_start`."""
        self.starts += 1
        return self.starts

    def forget_metadata_end(self) -> None:
        """The machine starts anew: core 0 has to say what is durable."""
        self.layout.tell_metadata_end(0)

    def owner(self, log: int) -> SimCore:
        """The core that writes the metadata log, the only one that clients of a simulation ask about."""
        return self.members[0]

    def leader(self, topic: str, partition: int) -> SimCore | None:
        """The core that leads a partition, as any living one knows; None while none is up."""
        for node in self.nodes:
            found = node.metadata.image.topics_by_name.get(topic)
            if found is not None:
                return self.members[found.assignment[partition].leader - FIRST_NODE_ID]
        return None

    @property
    def nodes(self) -> list[Node]:
        """The brokers that can be reached."""
        return [one.node for one in self.members if one.node is not None]

    def close(self) -> None:
        self.layout.close()


def core_path(number: int) -> Path:
    """The directory of a core, if all have one disk."""
    return DATA_PATH / CORES_DIRECTORY / str(number) if number else DATA_PATH


def _config(settings: Mapping[str, str], number: int) -> BrokerConfig:
    own = {
        "node.id": str(FIRST_NODE_ID + number),
        "listeners": f"PLAINTEXT://sim:{FIRST_PORT + number}",
        "allow.remote.broker.requests": "true",
    }
    return sim_config({**settings, **own})


async def register_cores(node: Broker, configs: Sequence[BrokerConfig]) -> None:
    """In place of `placed.register_cores`: nothing has to move, and no id is random."""
    await register_all(
        node.metadata,
        {
            one.node_id: Registration(bytes(16), end_points(one, configured_addresses(one)), one.broker_rack)
            for one in configs
        },
    )


async def run_sync(call: Callable[..., Any], *arguments: Any, **_how: Any) -> Any:
    """As `trio.to_thread.run_sync`: the call happens at one moment, some time later."""
    with trio.CancelScope(shield=True):
        await nap(THREAD_SECONDS)
    return call(*arguments)
