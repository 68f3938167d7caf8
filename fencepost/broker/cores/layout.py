"""What the cores of one machine agree on: their node ids, directories, ports and secret."""

import dataclasses
import fcntl
import mmap
import os
import platform
import secrets
import socket
import struct
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import trio

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.config.listeners import EVERY_INTERFACE, Listener
from fencepost.broker.log.storage.layout import CORE_STARTS, CORES_DIRECTORY
from fencepost.broker.metadata.identity import CORES_VERSION, COUNT_SETTINGS, check_format, cluster_id_of, set_format
from fencepost.broker.metadata.reader import MetadataReader, NoMetadataLog
from fencepost.broker.network.context import Endpoint
from fencepost.broker.peers.peer import Peer
from fencepost.coordinator.metadata.delta import MetadataCorrupt

SECRET_BYTES = 32
_WAKES_AT_ONCE = 1 << 16
_TRIES = 200
BACKLOG = 128
_OFFSET = struct.Struct("@q")
"""Aligned, so that no reader sees half of a new value."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The cores of one machine. Core 0 has the metadata log, and is the controller."""

    configs: tuple[BrokerConfig, ...]
    """The settings of each core."""
    secret: bytes
    """By which the cores recognize one another; a new one for each start."""
    sockets: tuple[socket.socket, ...]
    """On which each core listens for the others: they outlive its processes."""
    page_sockets: tuple[socket.socket, ...]
    """On which each core serves its own pages to the others; empty if no pages are served."""
    pages_socket: socket.socket | None
    """On which every core serves the pages of all of them."""
    shared: mmap.mmap
    """Memory of all cores."""
    wakes: tuple[tuple[int, int], ...]
    """A pipe for each core, by which core 0 wakes it."""
    alive_fd: int = -1
    """Can be read when the supervisor has ended."""
    start: int = 0
    """Of the process of this core: rises with each start of a core."""

    @property
    def root(self) -> Path:
        """The directory of core 0."""
        directory = self.configs[0].data_directory
        assert directory is not None, "cores have files"
        return directory

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(config.node_id for config in self.configs)

    def peers_of(self, node_id: int) -> dict[int, Peer]:
        """The other cores, as clients reach them."""
        return {
            config.node_id: Peer(config.node_id, config.broker_rack, _advertised(config))
            for config in self.configs
            if config.node_id != node_id
        }

    def address(self, node_id: int) -> Endpoint:
        """The first address of a core."""
        return next(iter(_advertised(self.configs[self.node_ids.index(node_id)]).values()))

    def unix_address(self, node_id: int) -> str | bytes:
        """Where the core listens for the others."""
        address: str | bytes = self.sockets[self.node_ids.index(node_id)].getsockname()
        return address

    def close(self) -> None:
        for one in (*self.sockets, *self.page_sockets, *filter(None, [self.pages_socket])):
            one.close()
        for pipe in self.wakes:
            for end in pipe:
                os.close(end)
        self.shared.close()

    @property
    def metadata_end(self) -> int:
        """Below this offset the metadata log is durable; core 0 says so."""
        offset: int = _OFFSET.unpack_from(self.shared)[0]
        return offset

    def tell_metadata_end(self, offset: int) -> None:
        """As core 0, and wake the others."""
        _OFFSET.pack_into(self.shared, 0, offset)
        for _, written in self.wakes:
            with suppress(BlockingIOError):  # it is full: that core has not looked yet
                os.write(written, b"1")

    async def metadata_written(self, number: int) -> None:
        """Return when core 0 has made more durable since the last call."""
        await trio.lowlevel.wait_readable(self.wakes[number][0])
        with suppress(BlockingIOError):
            os.read(self.wakes[number][0], _WAKES_AT_ONCE)


def read_start(root: Path) -> int:
    """The number of the last start of a core; 0 if there was none. Raises ValueError for a damaged file."""
    path = root / CORE_STARTS
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return 0
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{path} is damaged: write the number of a later start into it, such as 1000000000")
    return int(text)


def prepared(config: BrokerConfig, cores: int) -> Layout:
    """The layout of the cores, whose directories are made. Raises WrongDirectory and OSError."""
    directory = config.data_directory
    assert directory is not None, "cores have files"
    directory.mkdir(parents=True, exist_ok=True)
    check_format(directory, cores=True)
    cluster_id = cluster_id_of(directory, config.node_id, config.cluster_id)
    if cores > 1:
        set_format(directory, CORES_VERSION)
    configs = _configs(_as_made(config, directory), cores, cluster_id)
    for one in configs:
        assert one.data_directory is not None
        one.data_directory.mkdir(parents=True, exist_ok=True)
    sockets = _socket_names()
    pages = _pages_socket(config.metrics_listen)
    return Layout(
        configs,
        secrets.token_bytes(SECRET_BYTES),
        tuple(_listening(f"{sockets}{number}") for number in range(cores)),
        () if pages is None else tuple(_listening(f"{sockets}{number}-pages") for number in range(cores)),
        pages,
        mmap.mmap(-1, mmap.PAGESIZE),
        tuple(nonblocking_pipe() for _ in configs),
    )


def nonblocking_pipe() -> tuple[int, int]:
    """The two ends of a pipe, of which neither blocks: the one to read from, and the one to write to."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


def _as_made(config: BrokerConfig, root: Path) -> BrokerConfig:
    """The configuration with the numbers of partitions that internal topics were made with: the same for all cores."""
    try:
        topics = MetadataReader(root).image().topics_by_name
    except (NoMetadataLog, MetadataCorrupt):
        return config  # a new directory, or core 0 reports it
    made = {name: str(topics[topic].partitions) for topic, name in COUNT_SETTINGS.items() if topic in topics}
    return config.with_dynamic(made, {})


def _socket_names() -> str:
    """What the names of the sockets begin with: abstract ones on Linux, which no cleaner of files removes."""
    if platform.system() == "Linux":
        return f"\0fencepost-{secrets.token_hex(8)}-"
    return f"{tempfile.mkdtemp(prefix='fencepost-')}/"  # not in the data directory: a name has about 100 bytes


def _listening(name: str) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.bind(name)
    found.listen(BACKLOG)
    found.setblocking(False)
    return found


def _server(host: str, port: int) -> socket.socket:
    """A socket that listens at the first address of a host. Raises OSError."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return socket.create_server((str(address[0]), port), family=family, backlog=BACKLOG)


def _pages_socket(address: str | None) -> socket.socket | None:
    if address is None:
        return None
    host, _, port = address.rpartition(":")
    try:
        found = _server(host.strip("[]") or "127.0.0.1", int(port))
    except OSError as error:
        raise OSError(error.errno, f"metrics.listen: cannot listen on {address}: {error.strerror or error}") from error
    found.setblocking(False)
    return found


def next_start(root: Path) -> int:
    """The number of the next start of a core: durable before the core starts, so that none has it again.

    A core that begins to coordinate transactions of another one takes a number, too. Raises OSError and ValueError.
    """
    path = root / CORE_STARTS
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        number = read_start(root) + 1
        with path.with_suffix(".tmp").open("w") as file:
            file.write(f"{number}\n")
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".tmp").replace(path)
        os.fsync(directory)
    finally:
        os.close(directory)
    return number


def _configs(config: BrokerConfig, cores: int, cluster_id: str) -> tuple[BrokerConfig, ...]:
    """Core K listens K ports above the configured ones, advertises K ports above, and has the node id K above."""
    assert config.data_directory is not None
    with ExitStack() as held:
        listeners = [
            Listener(one.name, one.host, one.port or _first_free_port(held, one.host, cores))
            for one in config.client_listeners
        ]
    found = []
    for number in range(cores):
        own = tuple(str(one._replace(port=one.port + number)) for one in listeners)
        advertised = tuple(
            str(one.advertised._replace(port=one.advertised.port + number))
            for one in config.client_listeners
            if one.advertised is not None
        )
        changed = dataclasses.replace(
            config,
            node_id=config.node_id + number,
            cluster_id=cluster_id,
            listeners=own,
            advertised_listeners=advertised or None,
        )
        if number:
            directory = config.data_directory / CORES_DIRECTORY / str(number)
            changed = dataclasses.replace(
                changed,
                log_dirs=(str(directory),),
                console_listen=None,
                schema_registry_listen=None,
                first_user=None,
                first_password=None,
            )
        found.append(changed)
    return tuple(found)


def _advertised(config: BrokerConfig) -> dict[str, Endpoint]:
    return {
        one.name: Endpoint(one.advertised.host, one.advertised.port)
        if one.advertised
        else Endpoint("" if one.host in EVERY_INTERFACE else one.host, one.port)
        for one in config.client_listeners
    }


def _first_free_port(held: ExitStack, host: str, count: int) -> int:
    """The first of `count` free ports that follow one another; no other program gets them while they are held."""
    for _ in range(_TRIES):
        with ExitStack() as taken, suppress(OSError, OverflowError):
            port: int = taken.enter_context(_server(host, 0)).getsockname()[1]
            for number in range(1, count):
                taken.enter_context(_server(host, port + number))
            held.push(taken.pop_all())
            return port
    raise OSError(f"no {count} free ports follow one another on {host or 'any address'}: name the first one")
