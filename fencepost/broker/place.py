"""A broker's place: where its logs are, which of them it leads, and which other brokers there are.

The parts of a broker ask their place, so none of them asks whether there is a cluster.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fencepost.broker.log.durability.checkpointing import Checkpointer
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log_opener import LogOpener
from fencepost.broker.metadata.identity import check_format
from fencepost.broker.metadata.log import first_free_producer_id
from fencepost.broker.peers.peer import Links, NoLinks, Peer
from fencepost.broker.ports import Broker

if TYPE_CHECKING:
    import trio
    from prometheus_client.core import Metric

    from fencepost.broker.config.broker_config import BrokerConfig
    from fencepost.broker.cores.followed_metadata import FollowedMetadata
    from fencepost.broker.cores.marker_writer import MarkerWriter
    from fencepost.broker.log.config import LogConfig
    from fencepost.broker.log.durability.flush_batch import Gathering
    from fencepost.broker.log.durability.flusher import Durability
    from fencepost.broker.log.partition import PartitionLog
    from fencepost.broker.log.results import Ticket
    from fencepost.broker.log.storage.store import Store, SyncTask
    from fencepost.broker.metrics.pages import Readiness
    from fencepost.broker.metrics.server import Page
    from fencepost.broker.network.context import Endpoint
    from fencepost.broker.network.dispatch import Handler
    from fencepost.broker.network.listening import Listening
    from fencepost.broker.security.sasl.session import Mechanism
    from fencepost.broker.share.letters import OtherLeaders
    from fencepost.broker.share.undecided import TransactionalStates
    from fencepost.coordinator.metadata.delta import Change
    from fencepost.coordinator.metadata.image import TopicImage
    from fencepost.coordinator.ports import Marker, ProducerIdSource, RemoteCoordinators, TopicView
    from fencepost.coordinator.share.values import SharePersister
    from fencepost.protocol.topics import TopicPartition


class LeaderAndEpoch(NamedTuple):
    """Who leads a partition."""

    leader: int | None
    """None while no broker does, or it is not known."""
    epoch: int


LeaderOf = Callable[[bytes, int], LeaderAndEpoch]
"""From topic id and partition to its leader."""


class RemoteLog(Protocol):
    """A log of another broker, to which this one writes markers: a `FlushedLog`."""

    commits_remotely: bool

    def append(self, marker: "Marker", now_ms: int) -> "Ticket":
        """The ticket is settled when the marker is durable."""


class Followed(Protocol):
    """The logs of other brokers that consumers read here (KIP-392); `FollowedLogs` documents its members."""

    def get(self, tp: "TopicPartition") -> "PartitionLog | None": ...
    def epoch(self, tp: "TopicPartition") -> int | None: ...
    def needs_look(self, tp: "TopicPartition", offset: int, claimed_epoch: int) -> bool: ...
    async def prepare(self, partitions: "Iterable[TopicPartition]") -> None: ...


class Place(ABC):
    """What a broker asks of its place. What a place does not override is the answer for a broker without others."""

    has_files = False
    """Whether the logs are in files of this machine."""
    outlives_process = True
    """Whether the next process finds the logs: then the metadata have snapshots."""
    durability: "Durability" = "fsync"
    gathering: "Gathering | None" = None
    """What rounds of the flusher wait for."""
    commits_together = False
    """Whether all that is appended in one instant becomes durable in one commit, or not at all."""
    serves_pages = False
    """Whether each run of the broker serves its metrics; otherwise its process does so for all runs."""
    followed: Followed | None = None
    """None if consumers read from leaders only."""
    followed_metadata: "FollowedMetadata | None" = None
    """The metadata log of another broker; None if this one has its own."""
    marker_writer: "MarkerWriter | None" = None
    """Writes markers at the leaders of partitions; None if none are `leaders_elsewhere`."""
    node_ids: tuple[int, ...] = ()
    """The brokers that partitions are placed on; none: this one."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.links: Links = NoLinks()
        """Connections to the other brokers."""
        self.peers: Mapping[int, Peer] = {}
        """The other living brokers by id."""
        self.mechanisms: Mapping[str, Mechanism] = {}
        """The SASL mechanisms with which other brokers log in; without any there are no other brokers."""

    # Who leads what

    @property
    def leads(self) -> bool:
        return True

    @property
    def answers_hold(self) -> bool:
        """Whether what was durable still is: no client hears it any more once a cluster's database has lost commits."""
        return True

    @property
    def is_controller(self) -> bool:
        return True

    @property
    def controller_id(self) -> int | None:
        return self.node_id

    def leads_partition(self, topic_id: bytes, partition: int) -> bool:
        return True

    def count_led(self, topic: "TopicImage") -> int:
        return topic.partitions

    def leader(self, topic_id: bytes, partition: int) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.node_id, -1)

    async def change_cores(self, count: int) -> str | None:
        """Begin to change the number of cores. Returns why that cannot be, and what to do."""
        return (
            "this broker has no process that could start cores, so their number cannot change while it runs: stop it,"
            f" and start it with --cores {count}, which needs --data"
        )

    def metadata_changed(self, change: "Change") -> None:  # noqa: B027 - most ignore it
        """The metadata have changed, durably."""

    async def newest_leaders(self) -> LeaderOf:
        """The leaders as they are now, which `leader` may not know yet. Raises PeerUnavailable."""
        return self.leader

    def with_leaders(self, topic: "TopicImage") -> "TopicImage":
        return topic

    def closest(self, topic_id: bytes, partition: int, rack: str, listener: str) -> int | None:
        """The broker from which a consumer in this rack should read a partition that this broker leads; None: this."""
        return None

    # What other brokers do

    def wrapped(self, api_key: int, handle: "Handler") -> "Handler":
        """The handler of an API, with what other brokers have to do with it."""
        return handle

    def producer_ids(self, own: "ProducerIdSource") -> "ProducerIdSource":
        """Where producer ids come from; `own` gives those of this broker's metadata."""
        return own

    def first_producer_id(self) -> int:
        """Clients may use lower ones, of which the metadata know nothing."""
        return 0

    def remote_coordinators(self, topics: "TopicView", partitions: int) -> "RemoteCoordinators | None":
        """The transaction coordinators of other brokers; `partitions` are those of `__transaction_state`."""
        return None

    def share_persister(self, node: Broker) -> "SharePersister":
        """Where the states of share partitions are kept (KIP-932)."""
        return node.share_states

    def transactional_states(self, node: Broker) -> "TransactionalStates | None":
        """What transactions store there of share partitions, if other brokers may keep their states; else None."""
        return None

    def dead_letters(self, node: Broker) -> "OtherLeaders | None":
        """What dead letters go through whose partition another broker leads (KIP-1191)."""
        return None

    def lost_commits(self, tp: "TopicPartition") -> bool:
        """Whether commits to this log may have been lost before this broker led it."""
        return False

    async def note_position(self) -> None:  # noqa: B027 - a place without others has nothing to note
        """Another broker has answered. Where commits can be lost, its answer rests on some: note how many there are, so
        that this broker notices if they get fewer. Raises PeerUnavailable.
        """

    def marker_log(self, tp: "TopicPartition", topic_id: bytes) -> "PartitionLog | RemoteLog | None":
        """Where a marker goes for a partition that clients cannot use here; None if nowhere."""
        return None

    def leaders_elsewhere(self, partitions: "Collection[TopicPartition]") -> "Mapping[int, Collection[TopicPartition]]":
        """Of these partitions those to which markers go by the `marker_writer`, by their leader."""
        return {}

    async def read_markers(self, logs: "Collection[PartitionLog]") -> bool:
        """Read what coordinators of other brokers have written to these logs. Returns whether that succeeded."""
        return True

    def listenings(self) -> "Iterable[Listening]":
        """Listeners besides the configured ones."""
        return ()

    @property
    def coordinator_epoch(self) -> int | None:
        """The epoch in the markers of this broker's transaction coordinator; None: that of its log."""
        return None

    # Logs

    @abstractmethod
    def open_logs(self, default_config: "Callable[[str], LogConfig]") -> LogManager:
        """The logs. `default_config` returns a topic's settings. Raises as `Node` does."""

    def keep_metadata(self, kind: str, offset: int, file_name: str, data: bytes) -> "Collection[SyncTask]":
        """The tasks that store a file of the metadata log's directory elsewhere, if that does not outlive the process:
        of its kind, for this offset, with its name and content.
        """
        return ()

    # Start and stop

    async def load_metadata(self, node: Broker) -> None:
        """Load the metadata, or as the first controller write them. Raises as `MetadataService.start`."""
        await node.metadata.start(first_free_producer_id(node.logs), standby=not self.is_controller)

    @abstractmethod
    async def begin(self, node: Broker, services: "trio.Nursery") -> None:
        """Begin what the coordinators need before they load."""

    @abstractmethod
    def begin_upkeep(self, node: Broker, services: "trio.Nursery") -> None:
        """Begin the rest of what runs as long as the broker."""

    def stop_waiting(self) -> bool:
        """The broker stops: wait for no commit that cannot come soon. Returns whether that is so."""
        return False

    def close(self, logs: LogManager) -> None:
        """Close the logs. Raises OSError."""
        logs.close()

    # Reports

    @abstractmethod
    def facts(self) -> list[str]:
        """NAME=VALUE, for the line of a broker that is ready."""

    async def serve_pages(
        self,
        address: str,
        services: "trio.Nursery",
        metrics: "Callable[[], Awaitable[Page]]",
        ready: "Callable[[], Readiness]",
    ) -> "Endpoint":
        """Serve the pages of `--metrics` until `services` end; returns the bound address. Raises OSError."""
        from fencepost.broker.metrics.pages import serve_pages  # here: few brokers serve them

        return await serve_pages(address, services, metrics, ready)

    def metrics(self, rows: int) -> "Iterable[Metric]":
        """The metrics of this place; `rows` is how many rows its logs have."""
        return ()


class Alone(Place):
    """No other broker: the logs are in a data directory, or in memory."""

    serves_pages = True
    knows_cores = False
    """Whether it may use a directory that several cores used."""

    def __init__(self, config: "BrokerConfig", store: "Store | None" = None) -> None:
        """`store` replaces the data directory."""
        super().__init__(config.node_id)
        self._config = config
        self._store = store
        self.has_files = self.outlives_process = store is not None or config.data_directory is not None
        self.durability = config.durability

    def open_logs(self, default_config: "Callable[[str], LogConfig]") -> LogManager:
        if self._store is not None:
            return LogManager.over(self._store, self.durability, default_config)
        path = self._config.data_directory
        check_format(path, cores=self.knows_cores)
        return LogManager.open(path, durability=self.durability, default_config=default_config)

    async def begin(self, node: Broker, services: "trio.Nursery") -> None:
        """Open the logs, before the coordinators write the markers of decided transactions."""
        if self.has_files:
            opener = node.partitions.opener = LogOpener(node.logs, node.metadata, node.upkeep_threads)
            await services.start(opener.run)

    def begin_upkeep(self, node: Broker, services: "trio.Nursery") -> None:
        services.start_soon(node.cleaner.run)
        if self.has_files:
            node.logs.lose = node.flusher.lose
            services.start_soon(Checkpointer(node.logs, node.flusher, node.clock.monotonic, node.upkeep_threads).run)

    def facts(self) -> list[str]:
        path = self._config.data_directory
        if path is None:
            return ["data=memory", "durability=none"]
        return [f"data={path.absolute()}", f"durability={self._config.durability}"]
