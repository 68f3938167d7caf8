"""The partitions that this broker leads, and for every other one why it has no log of it here."""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from fencepost.broker.log.directory import LogDirectory
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.coordinator.metadata.service import MetadataService
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)


class Leader(NamedTuple):
    """The broker that leads a partition, as a hint for clients (KIP-951)."""

    node_id: int
    epoch: int
    host: str
    port: int
    rack: str | None = None


class Partitions:
    """Which partition is owned (it has a log here), opening, foreign or offline.

    `give_up` is where a partition stops being ours. With the file engine none ever does, and none is opening: a log is
    opened when it is first asked for.
    """

    def __init__(self, logs: LogDirectory, metadata: MetadataService) -> None:
        self._logs = logs
        self._metadata = metadata
        self._owned: dict[TopicPartition, PartitionLog] = {}
        self._offline: set[TopicPartition] = set()
        self._elsewhere: dict[TopicPartition, Leader | None] = {}
        """Partitions that are not ours: their leaders, None while they are opening here."""

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """The log of a partition, opened on first use; None where there is none, and `absence` says why."""
        log = self._owned.get(tp)
        if log is None and tp not in self._offline and tp not in self._elsewhere and self._metadata.exists(tp):
            try:
                return self.open(tp)
            except CorruptLogFile:
                self._offline.add(tp)  # reported where it was found
            except OSError as error:
                logger.error("partition cannot be opened and is offline partition=%s cause=%s", tp, error)
                self._offline.add(tp)
        return log

    def open(self, tp: TopicPartition) -> PartitionLog:
        """The log of a partition that the metadata knows. Raises CorruptLogFile and OSError."""
        topic = self._metadata.image.topics_by_name[tp.topic]
        log = self._owned[tp] = self._logs.create(tp, topic.topic_id, self._metadata.log_config(tp.topic))
        return log

    def owned(self) -> Iterable[tuple[TopicPartition, PartitionLog]]:
        """The logs that are open."""
        return self._owned.items()

    def absence(self, tp: TopicPartition) -> ErrorCode:
        """The error that a client gets where `get` gave None.

        A partition that is opening is answered as Kafka answers before a new leader has taken over: the client asks
        for the metadata and tries again.
        """
        if tp in self._elsewhere:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.KAFKA_STORAGE_ERROR if tp in self._offline else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def leader_of(self, tp: TopicPartition) -> Leader | None:
        """The other broker that leads a partition, as far as it is known."""
        return self._elsewhere.get(tp)

    def is_offline(self, tp: TopicPartition) -> bool:
        """Whether the partition has a log that cannot be opened, or whose flush failed."""
        log = self._owned.get(tp)
        return tp in self._offline or (log is not None and log.offline)

    @property
    def offline_count(self) -> int:
        """How many partitions are offline, for the metrics."""
        return len(self._offline) + sum(log.offline for log in self._owned.values())

    def give_up(self, tp: TopicPartition, leader: Leader) -> None:
        """Another broker leads the partition from now on."""
        self._elsewhere[tp] = leader
        self._offline.discard(tp)
        self._owned.pop(tp, None)
        self._logs.release(tp, f"broker {leader.node_id} leads {tp}")  # housekeeping may have opened it, too

    def begin_opening(self, tp: TopicPartition) -> None:
        """The partition becomes ours, and is not ready yet."""
        self._elsewhere[tp] = None

    def opened(self, tp: TopicPartition) -> None:
        """The partition is ours: its log is opened when it is asked for."""
        self._elsewhere.pop(tp, None)

    def forget(self, tp: TopicPartition) -> None:
        """The partition's topic was deleted."""
        self._owned.pop(tp, None)
        self._offline.discard(tp)
        self._elsewhere.pop(tp, None)
