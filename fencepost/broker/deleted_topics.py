"""The logs of deleted topics: they are deleted with the topic, or at the next start if a crash came first."""

import logging

from fencepost.broker.metadata.log import METADATA_PARTITION
from fencepost.broker.ports import Broker
from fencepost.protocol.topics import TopicPartition

MANY_PARTITIONS = 1000

logger = logging.getLogger(__name__)


class DeletedTopics:
    def __init__(self, node: Broker) -> None:
        self._node = node

    def delete(self, name: str, partitions: int) -> None:
        """Delete the logs of a topic that the metadata holds as deleted."""
        node = self._node
        existing = node.logs.partitions() if partitions > MANY_PARTITIONS else None
        for number in range(partitions):
            tp = TopicPartition(name, number)
            node.partitions.forget(tp)
            if existing is None or tp in existing:  # most partitions of a topic with very many were never written
                self._delete_log(tp)
        node.metrics.forget_topic(name)
        node.groups.topics_deleted([name])

    def delete_strays(self) -> None:
        """Delete logs of deleted topics: a crash came between the topic's deletion and that of its files.

        Only topics that the metadata holds as deleted. A log of an unknown topic is kept: the metadata may have been
        damaged or lost.
        """
        node = self._node
        for tp in sorted(node.logs.partitions()):
            if tp == METADATA_PARTITION or node.metadata.exists(tp):
                continue
            if node.logs.topic_id_on_disk(tp) in node.metadata.deleted_topic_ids:
                logger.info("deleting the log of a deleted topic that a crash left partition=%s", tp)
                self._delete_log(tp)
            else:
                logger.warning("topic of a log not in the metadata; the log is kept unopened partition=%s", tp)

    def find_lost_logs(self) -> None:
        """At a start: report the partitions whose directory is missing, and take them offline.

        They must not begin again, empty, at offset 0: consumers and transactions would take new records for old ones.
        """
        for tp in self._node.logs.expect(self._node.partitions.leads):
            self._node.partitions.get(tp)
        self.purge_checkpoints()

    def purge_checkpoints(self) -> None:
        """Drop what the checkpoints say about deleted topics, before a new topic gets a name and no log yet."""
        try:
            self._node.logs.kept.purge()
        except OSError as error:
            logger.error("checkpoints not written, the broker will try again cause=%s", error)

    def lingering_ids(self) -> set[bytes]:
        """The ids of deleted topics that still have logs: their deletion failed, or a start found them."""
        logs, metadata = self._node.logs, self._node.metadata
        left = (tp for tp in logs.partitions() if tp != METADATA_PARTITION and not metadata.exists(tp))
        return {logs.topic_id_on_disk(tp) for tp in left} & metadata.deleted_topic_ids

    def _delete_log(self, tp: TopicPartition) -> None:
        try:
            self._node.logs.delete(tp)
        except OSError as error:
            logger.error("cannot delete the files of a deleted partition partition=%s cause=%s", tp, error)
