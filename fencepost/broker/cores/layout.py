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
from typing import BinaryIO

import trio

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.config.listeners import EVERY_INTERFACE, PORT_MAX, Listener
from fencepost.broker.log.storage.layout import CORE_STARTS, CORES_DIRECTORY
from fencepost.broker.log.storage.lock import hold_cores, lock_within
from fencepost.broker.metadata.identity import CORES_VERSION, COUNT_SETTINGS, check_format, cluster_id_of, set_format
from fencepost.broker.metadata.reader import MetadataReader, NoMetadataLog
from fencepost.broker.network.context import Endpoint
from fencepost.broker.peers.peer import Peer
from fencepost.coordinator.metadata.delta import MetadataCorrupt

SECRET_BYTES = 32
_TRIES = 200
BACKLOG = 128
PATIENCE_SECONDS = 1.0
"""How long the supervisor waits for a core that takes the number of a start: as long as some flushes of the disk."""
_NUMBER = struct.Struct("@q")
"""Aligned, so that no reader sees half of a new value."""
_METADATA_END, _WANTED, _REGISTERED, _RUNNING = (place * _NUMBER.size for place in range(4))
"""Where the numbers are in the shared memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The cores of one machine. Core 0 has the metadata log, and is the controller."""

    configs: tuple[BrokerConfig, ...]
    """The settings of each core, when the process of this core began; at least those of core 0."""
    secret: bytes
    """By which the cores recognize one another; a new one for each start."""
    names: str
    """What the names of all sockets begin with. A core that began later is found by its number."""
    pages_socket: socket.socket | None
    """On which every core serves the pages of all of them."""
    shared: mmap.mmap
    """Memory of all cores."""
    held: BinaryIO | None = None
    """The lock of `hold_cores`, which all processes inherit."""
    sockets: tuple[socket.socket, ...] = ()
    """On which each core listens for the others: they outlive its processes."""
    page_sockets: tuple[socket.socket, ...] = ()
    """On which each core serves its own pages to the others; empty if no pages are served."""
    wakes: tuple[socket.socket, ...] = ()
    """By which core 0 wakes each core."""
    alive_fd: int = -1
    """Can be read when the supervisor has ended."""
    supervisor_fd: int = -1
    """The end of a pipe that wakes the supervisor."""
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
        """The cores that partitions are placed on."""
        return self.ids(min(self.wanted, self.registered))

    def ids(self, cores: int) -> tuple[int, ...]:
        """The node ids of that many cores."""
        first = self.configs[0].node_id
        return tuple(range(first, first + cores))

    def config(self, node_id: int) -> BrokerConfig:
        """The settings of a core, also of one that began later."""
        return _of_core(self.configs[0], node_id - self.configs[0].node_id)

    def peer(self, node_id: int) -> Peer:
        """A core, as clients reach it."""
        config = self.config(node_id)
        return Peer(node_id, config.broker_rack, _advertised(config))

    def address(self, node_id: int) -> Endpoint:
        """The first address of a core."""
        return next(iter(_advertised(self.config(node_id)).values()))

    def unix_address(self, node_id: int) -> str:
        """Where the core listens for the others."""
        return f"{self.names}{node_id - self.configs[0].node_id}"

    def page_address(self, node_id: int) -> str:
        """Where the core serves its pages to the others."""
        return f"{self.unix_address(node_id)}-pages"

    def grown(self, cores: int) -> "Layout":
        """With what this many cores need: directories and sockets, which stay if there are fewer again.

        Raises OSError.
        """
        configs, sockets, pages, wakes = (
            [*found] for found in (self.configs, self.sockets, self.page_sockets, self.wakes)
        )
        first = self.configs[0].node_id
        for node_id in range(first + len(sockets), first + cores):
            config = self.config(node_id)
            assert config.data_directory is not None
            config.data_directory.mkdir(parents=True, exist_ok=True)
            sockets.append(_listening(self.unix_address(node_id)))
            wakes.append(waking(f"{self.unix_address(node_id)}-wake"))
            if self.pages_socket is not None:
                pages.append(_listening(self.page_address(node_id)))
            configs[node_id - first :] = [config]
        return dataclasses.replace(
            self, configs=tuple(configs), sockets=tuple(sockets), page_sockets=tuple(pages), wakes=tuple(wakes)
        )

    def need_ports(self, cores: int) -> None:
        """Raise OSError if a port is taken that a further core needs, and ValueError if there is none so high.

        A core that is just stopping still has its ports, and may begin again with them.
        """
        _need_numbers_of_ports(self.configs[0], cores)
        for number in range(max(self.cores, self._get(_RUNNING)), cores):
            for one in self.configs[0].client_listeners:
                try:
                    _server(one.host, one.port + number).close()
                except OSError as error:
                    raise OSError(
                        f"core {number} would need port {one.port + number}, and cannot listen there:"
                        f" {os.strerror(error.errno or 0)}; free this port, or name fewer cores"
                    ) from error

    def close(self) -> None:
        for one in (*self.sockets, *self.page_sockets, *self.wakes, *filter(None, [self.pages_socket])):
            one.close()
        if self.held is not None:
            self.held.close()
        self.shared.close()

    def _get(self, place: int) -> int:
        number: int = _NUMBER.unpack_from(self.shared, place)[0]
        return number

    @property
    def metadata_end(self) -> int:
        """Below this offset the metadata log is durable; core 0 says so."""
        return self._get(_METADATA_END)

    def tell_metadata_end(self, offset: int) -> None:
        """As core 0, and wake the others."""
        _NUMBER.pack_into(self.shared, _METADATA_END, offset)
        for number in range(1, self.cores):
            with suppress(OSError):  # it is full: that core has not looked yet; or the core is only about to begin
                self.wakes[0].sendto(b"1", f"{self.names}{number}-wake")

    async def metadata_written(self, number: int) -> None:
        """Return when core 0 has made more durable since the last call."""
        await trio.lowlevel.wait_readable(self.wakes[number])
        with suppress(BlockingIOError):
            while True:
                self.wakes[number].recv(1)

    # How many cores there are, and are to be

    @property
    def wanted(self) -> int:
        """How many cores there are to be."""
        return self._get(_WANTED)

    @property
    def registered(self) -> int:
        """How many cores the metadata has: while they are to be fewer, all of them until the others lead everything."""
        return self._get(_REGISTERED)

    @property
    def cores(self) -> int:
        """How many have to run."""
        return max(self.wanted, self.registered)

    def tell_running(self, cores: int) -> None:
        """As the supervisor: how many cores have not ended yet."""
        _NUMBER.pack_into(self.shared, _RUNNING, cores)

    def tell_cores(self, *, wanted: int | None = None, registered: int | None = None) -> None:
        """As core 0, and wake the supervisor."""
        for place, number in ((_WANTED, wanted), (_REGISTERED, registered)):
            if number is not None:
                _NUMBER.pack_into(self.shared, place, number)
        with suppress(OSError):  # it is full, so the supervisor looks; or there is none
            os.write(self.supervisor_fd, b"1")


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
    """The layout of the cores, whose directories are made.

    Raises WrongDirectory, DirectoryInUse, ValueError and OSError.
    """
    directory = config.data_directory
    assert directory is not None, "cores have files"
    directory.mkdir(parents=True, exist_ok=True)
    check_format(directory, cores=True)
    cluster_id = cluster_id_of(directory, config.node_id, config.cluster_id)
    if cores > 1:
        set_format(directory, CORES_VERSION)
    first = _of_core_0(_as_made(config, directory), cores, cluster_id)
    pages = _pages_socket(config.metrics_listen)
    held = hold_cores(directory)
    made = Layout(
        (first,), secrets.token_bytes(SECRET_BYTES), socket_names(), pages, mmap.mmap(-1, mmap.PAGESIZE), held
    ).grown(cores)
    made.tell_cores(wanted=cores, registered=cores)
    return made


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


def socket_names() -> str:
    """What the names of the sockets begin with: abstract ones on Linux, which no cleaner of files removes."""
    if platform.system() == "Linux":
        return f"\0fencepost-{secrets.token_hex(8)}-"
    return f"{tempfile.mkdtemp(prefix='fencepost-')}/"  # not in the data directory: a name has about 100 bytes


def waking(name: str) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.bind(name)
    found.setblocking(False)
    return found


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


def next_start(root: Path, *, wait: bool = True) -> int:
    """The number of the next start of a core: durable before the core starts, so that none has it again.

    A core that begins to coordinate transactions of another one takes a number, too. Without `wait` a core that does
    so for longer than `PATIENCE_SECONDS` is an error: it may be frozen. Raises OSError and ValueError.
    """
    path = root / CORE_STARTS
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if wait:
            fcntl.flock(directory, fcntl.LOCK_EX)
        elif not lock_within(directory, PATIENCE_SECONDS):
            raise BlockingIOError("another core takes the number of a start and does not finish: it may be frozen")
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


def _of_core_0(config: BrokerConfig, cores: int, cluster_id: str) -> BrokerConfig:
    """With ports behind which those of the other cores are free, and a cluster id."""
    with ExitStack() as held:
        listeners = [
            Listener(one.name, one.host, one.port or _first_free_port(held, one.host, cores))
            for one in config.client_listeners
        ]
    first = dataclasses.replace(config, cluster_id=cluster_id, listeners=tuple(map(str, listeners)))
    _need_numbers_of_ports(first, cores)
    return first


def _need_numbers_of_ports(first: BrokerConfig, cores: int) -> None:
    """Raise ValueError if the last core would have a port that is too high."""
    addresses = [address for one in first.client_listeners for address in (one, one.advertised) if address]
    highest = max(one.port for one in addresses) + cores - 1
    if highest > PORT_MAX:
        raise ValueError(
            f"core {cores - 1} would have the port {highest}, and {PORT_MAX} is the highest: name a port of at most"
            f" {PORT_MAX - cores + 1}, or fewer cores"
        )


def _of_core(first: BrokerConfig, number: int) -> BrokerConfig:
    """Core K listens K ports above those of core 0, advertises K ports above, and has the node id K above."""
    if not number:
        return first
    listeners = first.client_listeners
    advertised = tuple(
        str(one.advertised._replace(port=one.advertised.port + number)) for one in listeners if one.advertised
    )
    assert first.data_directory is not None
    return dataclasses.replace(
        first,
        node_id=first.node_id + number,
        listeners=tuple(str(Listener(one.name, one.host, one.port + number)) for one in listeners),
        advertised_listeners=advertised or None,
        log_dirs=(str(first.data_directory / CORES_DIRECTORY / str(number)),),
        console_listen=None,
        schema_registry_listen=None,
    )


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
