"""The metadata log, opened so that damage in it costs the changes from there on, and never the broker.

What follows the first damaged batch cannot be believed. A copy of the whole log is kept under another name before it
is cut; as long as the copy is there, nothing is forgotten for a topic that the metadata does not know any more, and
producer ids go on far above any that the lost part may have given out (docs/decisions/0013-damaged-files.md).
"""

import logging
from collections.abc import Iterator, Sequence

from fencepost.broker.coordinator_logs import LogTicket, PartitionCoordinatorLog
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.directory import LogDirectory
from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.recovery.scanning import need_no_batch_after_damage
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.metadata.snapshots import begin_behind_snapshot
from fencepost.coordinator.metadata.ports import LoggedBatch
from fencepost.coordinator.ports import LogSuperseded, LogUnreadable, LogWriteFailed
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.topics import METADATA_TOPIC, TopicPartition

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
METADATA_TOPIC_ID = bytes(15) + b"\x01"
"""Kafka's fixed id of the metadata topic."""

_IDS_PER_LOSS = 1 << 40
"""More producer ids than a lost part can have reserved: a thousand at a time, one batch each."""

logger = logging.getLogger(__name__)


class MetadataPartitionLog:
    """The metadata log as its controller sees it: appends are conditional on what that one has read and written.

    Several may stand over one log: the LogStore's Conflict tells them apart (docs/decisions/0015-the-log-seam.md).
    """

    def __init__(self, log: PartitionLog, commit: LogFlusher) -> None:
        self._log = log
        self._commit = commit
        self._records = PartitionCoordinatorLog(log, commit)
        self._end_offset = log.log_start_offset
        self._appended: Ticket | None = None
        """The last append, if what `end_offset` stands for ends with it."""

    @property
    def end_offset(self) -> int:
        return self._end_offset

    def append(self, values: Sequence[bytes], now_ms: int) -> LogTicket:
        """Append `values` as one atomic batch. Raises LogSuperseded, and LogWriteFailed where the log refuses."""
        batch = build_batch([(now_ms, None, value, ()) for value in values])
        info = self._log.append(batch, AppendOrigin.COORDINATOR, now_ms, expected_offset=self._end_offset)
        if info.error is ErrorCode.NONE:
            self._end_offset, self._appended = info.end_offset, info
            return LogTicket(self._commit, info)
        why = f"{self._log.tp} refused a batch: {info.error.name} {info.message or ''}"
        if info.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise LogSuperseded(ErrorCode.NOT_CONTROLLER, why)
        raise LogWriteFailed(info.error, why)

    @property
    def newest(self) -> LogTicket:
        return LogTicket(self._commit, self._appended or Ticket(self._log, self._end_offset))

    def read(self) -> Iterator[LoggedBatch]:
        for next_offset, batch in self._records.replay_from(self._end_offset):
            self._end_offset, self._appended = next_offset, None
            values = None if batch.marker_commits is not None else [value or b"" for _, value in batch.records]
            yield LoggedBatch(batch.base_offset, next_offset, batch.timestamp_ms, values)

    def seek(self, offset: int) -> None:
        if not self._log.log_start_offset <= offset <= self._log.log_end_offset:
            why = f"goes from offset {self._log.log_start_offset} to {self._log.log_end_offset}, not to {offset}"
            raise LogUnreadable(f"{self._log.store.place} {why}")
        self._end_offset, self._appended = offset, None


def open_metadata_log(logs: LogDirectory, commit: LogFlusher, config: LogConfig) -> PartitionLog:
    """The metadata log up to its first damaged batch, or behind a snapshot that knows more. Raises OSError."""
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
        behind = begin_behind_snapshot(logs.files(METADATA_PARTITION))
        log = logs.create(METADATA_PARTITION, METADATA_TOPIC_ID, config, only_topic=True)
        logger.error(
            "the metadata log is damaged; the broker continues from offset %d%s: %s. A full copy is in %s/%s. Later"
            " topics and settings are unknown; their logs are kept. Stop the broker and restore %s from a backup, or"
            " delete the copy to accept the loss",
            log.log_end_offset,
            "" if behind is None else ", up to which a snapshot knows all",
            error,
            logs.place,
            aside,
            METADATA_PARTITION,
        )
    return log


def first_free_producer_id(logs: LogDirectory) -> int:
    """Producer ids below this one may have been given out by metadata that is lost."""
    return logs.kept_aside(METADATA_PARTITION) * _IDS_PER_LOSS
