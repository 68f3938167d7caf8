"""What the parts of a broker use of it. `Node` implements it, and a test's double only what its test needs."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.byte_budget import ByteBudget
    from fencepost.broker.config.broker_config import BrokerConfig
    from fencepost.broker.deleted_topics import DeletedTopics
    from fencepost.broker.fetch.sessions import FetchSessions
    from fencepost.broker.log.compaction.cleaner import LogCleaner
    from fencepost.broker.log.durability.flusher import LogFlusher
    from fencepost.broker.log.durability.large_writes import LargeWrites
    from fencepost.broker.log.durability.sync_threads import FlushThreads
    from fencepost.broker.log.logs import LogManager
    from fencepost.broker.log.partition import PartitionLog
    from fencepost.broker.metadata.answers import MetadataAnswers
    from fencepost.broker.metrics.counters import Metrics
    from fencepost.broker.network.dispatch import Dispatch
    from fencepost.broker.network.large_requests import LargeRequests
    from fencepost.broker.partitions import Partitions
    from fencepost.broker.place import Place
    from fencepost.broker.purgatory import Purgatory
    from fencepost.broker.security.authorizer import Authorizer
    from fencepost.broker.security.quotas import ClientQuotas
    from fencepost.broker.share.partitions import SharePartitions
    from fencepost.broker.transactions.hanging import HangingCheck
    from fencepost.broker.transactions.markers import Markers
    from fencepost.coordinator.group.service import GroupService
    from fencepost.coordinator.metadata.service import MetadataService
    from fencepost.coordinator.ports import Clock
    from fencepost.coordinator.runtime.runtime import CoordinatorRuntime
    from fencepost.coordinator.share.group_config import ShareGroupSettings
    from fencepost.coordinator.share.service import ShareStates
    from fencepost.coordinator.txn.coordinator import TransactionCoordinator


class Broker(Protocol):
    """One broker, as its handlers, its metrics and its place use it."""

    stopping: bool
    """Whether a clean shutdown has begun."""

    @property
    def clock(self) -> "Clock":
        """The only source of time."""

    @property
    def config(self) -> "BrokerConfig":
        """The current settings: those of the start, overridden by those altered at run time."""

    @property
    def metrics(self) -> "Metrics":
        """The counters, as plain numbers."""

    @property
    def place(self) -> "Place":
        """Where this broker's logs are, and which of them it leads."""

    # Requests

    @property
    def dispatch(self) -> "Dispatch":
        """From API key and version to the handler."""

    @property
    def large_requests(self) -> "LargeRequests":
        """Runs the requests of many elements in steps, in turns."""

    @property
    def response_bytes(self) -> "ByteBudget":
        """The bytes of responses that are not sent yet."""

    @property
    def purgatory(self) -> "Purgatory":
        """Parked fetches, and lookups that wait for bytes."""

    @property
    def fetch_sessions(self) -> "FetchSessions": ...

    # Who may do what, and how much

    @property
    def authorizer(self) -> "Authorizer | None":
        """The authorizer with the newest durable ACLs; None if no authorizer is set, so that clients may do all."""

    @property
    def quotas(self) -> "ClientQuotas | None":
        """The quotas of users and client ids; None if there are none."""

    # Partitions and logs

    @property
    def partitions(self) -> "Partitions":
        """The partitions that this broker leads."""

    def partition(self, tp: TopicPartition) -> "PartitionLog | None":
        """The log of a partition, opened on first use; None if there is none, and `absence` returns why."""

    def absence(self, tp: TopicPartition) -> ErrorCode:
        """The error for a client if `partition` returned None."""

    def is_offline(self, tp: TopicPartition) -> bool:
        """Whether the partition has a log that cannot be opened, or whose flush failed."""

    @property
    def logs(self) -> "LogManager":
        """Every open log, internal topics included."""

    @property
    def flusher(self) -> "LogFlusher":
        """The flusher, which makes appended batches durable."""

    @property
    def large_writes(self) -> "LargeWrites":
        """The thread that writes a large batch to its file before the append."""

    @property
    def upkeep_threads(self) -> "FlushThreads":
        """Threads for disk work that no request waits for, or rarely."""

    @property
    def cleaner(self) -> "LogCleaner": ...
    @property
    def deleted_topics(self) -> "DeletedTopics": ...

    # Coordinators

    @property
    def runtimes(self) -> "Iterable[CoordinatorRuntime[Any, Any, Any]]":
        """Those of the coordinators that follow."""

    @property
    def metadata(self) -> "MetadataService":
        """The controller and the newest durable image."""

    @property
    def metadata_log(self) -> "PartitionLog":
        """`__cluster_metadata-0`."""

    @property
    def metadata_answers(self) -> "MetadataAnswers":
        """The encoded topics of Metadata responses."""

    def stop(self) -> None:
        """Begin a clean shutdown; returns at once."""

    async def register(self) -> None:
        """As the controller, register this run of the broker in the metadata."""

    @property
    def groups(self) -> "GroupService":
        """Classic and consumer groups, and their committed offsets."""

    @property
    def consumer_protocol(self) -> bool:
        """Whether groups may use the consumer protocol (KIP-848)."""

    @property
    def share_states(self) -> "ShareStates":
        """The states of share partitions (KIP-932) that this broker keeps."""

    @property
    def shares(self) -> "SharePartitions":
        """The share partitions that this broker leads, and the sessions of their members."""

    @property
    def share_protocol(self) -> bool:
        """Whether there may be share groups (KIP-932)."""

    def share_settings(self, group_id: str) -> "ShareGroupSettings":
        """What holds for a share group now: its own settings, or else those of the broker."""

    @property
    def transactions(self) -> "TransactionCoordinator":
        """Every transactional id of this broker."""

    @property
    def markers(self) -> "Markers":
        """Writes the ends of transactions to their partitions."""

    @property
    def hanging(self) -> "HangingCheck":
        """Finds transactions that no coordinator will end."""
