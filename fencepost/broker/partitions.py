"""The partitions that this broker leads, and why the others have no log here."""

import errno
import logging
from collections.abc import Iterable

from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.store import CorruptLogFile, is_shortage
from fencepost.broker.log_opener import LogOpener
from fencepost.broker.place import Place
from fencepost.coordinator.metadata.service import MetadataService
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)


class Partitions:
    """Whether a partition is owned (it has a log here), opening, foreign or offline.

    A log without an `opener` is opened on its first use.
    """

    def __init__(self, logs: LogManager, metadata: MetadataService, place: Place) -> None:
        """A broker that stands by in its cluster, or is cut off from it, leads no partition."""
        self._place = place
        self._logs = logs
        self._metadata = metadata
        self._owned: dict[TopicPartition, PartitionLog] = {}
        self._offline: set[TopicPartition] = set()
        self.opener: LogOpener | None = None
        self.moving: set[TopicPartition] = set()
        """Those that come from another broker or go there: no log is opened for them."""

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """The log of a partition, opened on first use; None if there is none, and `absence` returns why."""
        if not self._place.leads:
            return None
        log = self._owned.get(tp)
        if log is None and tp not in self._offline and self.leads(tp):
            if self.opener is not None and self.opener.hurry(tp):
                return None
            try:
                return self.open(tp)
            except CorruptLogFile:
                self._offline.add(tp)  # the log directory has reported it
            except OSError as error:
                if is_shortage(error):
                    logger.warning("partition not opened, its next use tries again partition=%s cause=%s", tp, error)
                    return None
                logger.error("cannot open a partition, it is offline partition=%s cause=%s", tp, error)
                self._offline.add(tp)
        return log

    def leads(self, tp: TopicPartition) -> bool:
        """Whether the partition exists, no other broker of the cluster leads it, and it is not under way."""
        if tp in self.moving or not self._metadata.exists(tp):
            return False
        topic_id = self._metadata.image.topics_by_name[tp.topic].topic_id
        return self._place.leads_partition(topic_id, tp.partition)

    def open(self, tp: TopicPartition) -> PartitionLog:
        """Open the log of a partition in the metadata. Raises CorruptLogFile and OSError."""
        if tp in self.moving:  # a second, empty log would be begun
            raise OSError(errno.EBUSY, f"{tp} moves to another broker, or from there")
        topic = self._metadata.image.topics_by_name[tp.topic]
        log = self._owned[tp] = self._logs.create(tp, topic.topic_id, self._metadata.log_config(tp.topic))
        log.leader_epoch = max(log.leader_epoch, self._place.leader(topic.topic_id, tp.partition).epoch)
        return log

    def owned(self) -> Iterable[tuple[TopicPartition, PartitionLog]]:
        return self._owned.items()

    def absence(self, tp: TopicPartition) -> ErrorCode:
        """The error for a client if `get` returned None.

        For a partition that is opening, or could not be opened because the system lacked descriptors or memory, it is
        NOT_LEADER_OR_FOLLOWER, as in Kafka before a new leader is ready: the client refreshes its metadata and retries.
        """
        if not self._metadata.exists(tp):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        offline = tp in self._offline and self._place.leads and self.leads(tp)
        return ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def is_offline(self, tp: TopicPartition) -> bool:
        log = self._owned.get(tp)
        return tp in self._offline or (log is not None and log.offline)

    def offline(self) -> list[TopicPartition]:
        return sorted(self._offline | {tp for tp, log in self._owned.items() if log.offline})

    def lose(self, tp: TopicPartition) -> None:
        """The partition has no log here any more, and must not begin again."""
        self._offline.add(tp)

    def hide(self, tp: TopicPartition) -> None:
        """Clients may not use the partition's log any more, because another broker will lead it soon."""
        self._owned.pop(tp, None)
        self._offline.discard(tp)

    def forget(self, tp: TopicPartition) -> None:
        """The partition's topic was deleted."""
        self._owned.pop(tp, None)
        self._offline.discard(tp)
