"""The metadata log, opened so that damage in it costs the changes from there on, and never the broker.

What follows the first damaged batch can not be believed. A copy of the whole log is kept under another name before it
is cut; as long as the copy is there, nothing is forgotten for a topic that the metadata does not know any more, and
producer ids go on far above any that the lost part may have given out (docs/decisions/0013-damaged-files.md).
"""

import logging

from fencepost.broker.coordinator_logs import PartitionCoordinatorLog
from fencepost.broker.log.commit import GroupCommit
from fencepost.broker.log.directory import LogDirectory
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.scanning import need_no_batch_after_damage
from fencepost.broker.log.store import CorruptLogFile
from fencepost.broker.topic_rules import metadata_log_config
from fencepost.coordinator.metadata.topic_names import METADATA_TOPIC
from fencepost.coordinator.ports import LogUnreadable
from fencepost.protocol.topics import TopicPartition

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
METADATA_TOPIC_ID = bytes(15) + b"\x01"
"""Kafka's fixed id of the metadata topic."""

_IDS_PER_LOSS = 1 << 40
"""More producer ids than a lost part can have reserved: a thousand at a time, one batch each."""

logger = logging.getLogger(__name__)


def open_metadata_log(logs: LogDirectory, commit: GroupCommit) -> PartitionLog:
    """The metadata log up to its first damaged batch. Raises OSError."""
    config = metadata_log_config()
    try:
        if not logs.clean:
            need_no_batch_after_damage(logs.files(METADATA_PARTITION))
        log = logs.create(METADATA_PARTITION, METADATA_TOPIC_ID, config, only_topic=True)
        for _ in PartitionCoordinatorLog(log, commit).replay():
            pass
    except (CorruptLogFile, LogUnreadable) as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from error
        aside = logs.keep_aside(METADATA_PARTITION)
        log = logs.create(METADATA_PARTITION, METADATA_TOPIC_ID, config, only_topic=True)
        logger.error(
            "the metadata log is damaged and goes on from offset %d: %s; all of it is kept as %s/%s. Topics and"
            " settings that came after are unknown and their logs left alone: stop the broker and restore %s from a"
            " backup, or delete the copy to do without",
            log.log_end_offset,
            error,
            logs.place,
            aside,
            METADATA_PARTITION,
        )
    return log


def first_free_producer_id(logs: LogDirectory) -> int:
    """Producer ids below this one may have been given out by metadata that is lost."""
    return logs.kept_aside(METADATA_PARTITION) * _IDS_PER_LOSS
