"""Narrow protocols of what the parts of a broker need from it; `Node` implements all of them.

A part names the protocols that it needs: `class _Broker(HasClock, HasPartitions, Protocol)`. So its signature shows
what it can use, and a test's double implements no more than that.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.byte_budget import ByteBudget
    from fencepost.broker.cluster.membership import Membership
    from fencepost.broker.config.broker_config import BrokerConfig
    from fencepost.broker.log.directory import LogDirectory
    from fencepost.broker.log.durability.flusher import LogFlusher
    from fencepost.broker.log.durability.large_writes import LargeWrites
    from fencepost.broker.log.durability.sync_threads import FlushThreads
    from fencepost.broker.log.partition import PartitionLog
    from fencepost.broker.log.results import Ticket
    from fencepost.broker.metadata.answers import MetadataAnswers
    from fencepost.broker.metrics.counters import Metrics
    from fencepost.broker.partitions import Leader
    from fencepost.broker.purgatory import Purgatory
    from fencepost.broker.security.authorizer import Authorizer
    from fencepost.broker.security.quotas import ClientQuotas
    from fencepost.coordinator.group.service import GroupService
    from fencepost.coordinator.metadata.service import MetadataService
    from fencepost.coordinator.ports import Clock
    from fencepost.coordinator.txn.coordinator import TransactionCoordinator


class HasClock(Protocol):
    """The time."""

    @property
    def clock(self) -> "Clock":
        """The only source of time."""


class HasConfig(Protocol):
    """The settings."""

    @property
    def config(self) -> "BrokerConfig":
        """The current settings: those of the start, overridden by those altered at run time."""


class HasAuthorizer(Protocol):
    """The rights of principals."""

    @property
    def authorizer(self) -> "Authorizer | None":
        """The authorizer with the newest durable ACLs; None if no authorizer is set, so that clients may do all."""


class HasCluster(Protocol):
    """The other brokers."""

    @property
    def cluster(self) -> "Membership | None":
        """This broker's place in its cluster; None for a broker with files, which is alone."""


class HasMetrics(Protocol):
    """The counters."""

    @property
    def metrics(self) -> "Metrics":
        """The counters, as plain numbers."""


class HasResponseBytes(Protocol):
    """The memory for responses."""

    @property
    def response_bytes(self) -> "ByteBudget":
        """The bytes of responses that are not sent yet."""


class HasQuotas(Protocol):
    """The client quotas."""

    @property
    def quotas(self) -> "ClientQuotas | None":
        """The quotas of users and client ids; None if there are none."""


class HasPartitions(Protocol):
    """The partitions that this broker serves."""

    def partition(self, tp: TopicPartition) -> "PartitionLog | None":
        """The log of a partition, opened on first use; None if there is none, and `absence` returns why."""

    def absence(self, tp: TopicPartition) -> ErrorCode:
        """The error for a client if `partition` returned None."""

    def leader_of(self, tp: TopicPartition) -> "Leader | None":
        """The other broker that leads a partition, if it is known."""

    def is_offline(self, tp: TopicPartition) -> bool:
        """Whether the partition has a log that cannot be opened, or whose flush failed."""


class HasLogs(Protocol):
    """Every open log of this broker, internal topics included."""

    @property
    def logs(self) -> "LogDirectory":
        """The data directory."""


class HasFlusher(Protocol):
    """The flusher, which makes appended batches durable."""

    @property
    def commit(self) -> "LogFlusher": ...

    async def wait_durable(self, tickets: "Collection[Ticket]") -> bool:
        """Return when every ticket is settled, or its log offline; True if a ticket's result may have changed."""

    @property
    def answers_hold(self) -> bool:
        """Whether what was durable still is: no client hears it any more once a cluster's database has lost commits."""


class HasUpkeepThreads(Protocol):
    """Threads for disk work that no request waits for."""

    @property
    def upkeep_threads(self) -> "FlushThreads": ...


class HasLargeWrites(Protocol):
    """The staging of large batches."""

    @property
    def large_writes(self) -> "LargeWrites":
        """The thread that writes a large batch to its file before the append."""


class HasPurgatory(Protocol):
    """The requests that wait for a change of a partition's bounds."""

    @property
    def purgatory(self) -> "Purgatory":
        """Parked fetches, and lookups that wait for bytes."""


class HasMetadata(Protocol):
    """The cluster's metadata."""

    @property
    def metadata(self) -> "MetadataService":
        """The controller and the newest durable image."""


class HasMetadataAnswers(Protocol):
    """The encoded responses to Metadata requests."""

    @property
    def metadata_answers(self) -> "MetadataAnswers":
        """The cache of the encoded topics."""


class HasMetadataLog(Protocol):
    """The log of the cluster's metadata."""

    @property
    def metadata_log(self) -> "PartitionLog":
        """`__cluster_metadata-0`."""


class HasGroups(Protocol):
    """The group coordinator."""

    @property
    def groups(self) -> "GroupService":
        """Classic and consumer groups, and their committed offsets."""

    @property
    def consumer_protocol(self) -> bool:
        """Whether groups may use the consumer protocol (KIP-848)."""


class HasTransactions(Protocol):
    """The transaction coordinator."""

    @property
    def transactions(self) -> "TransactionCoordinator":
        """Every transactional id of this broker."""
