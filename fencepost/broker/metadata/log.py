"""The metadata log. Damage in it loses the changes after it, but does not stop the broker.

The batches after the first damaged one cannot be trusted. The broker copies the whole log under another name before it
truncates the log. While the copy exists, the broker deletes nothing of topics that the metadata no longer knows. New
producer ids begin far above all that the lost part may have allocated (docs/decisions/0013-damaged-files.md).
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fencepost.broker.coordinator_logs import LogTicket, PartitionCoordinatorLog
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.recovery.scanning import need_no_batch_after_damage
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.layout import ACCEPT_LOSS
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
"""More producer ids than a lost part can have reserved: each batch reserves a thousand."""

logger = logging.getLogger(__name__)


class MetadataPartitionLog:
    """The metadata log for its controller: an append succeeds only if the controller has read all batches before it.

    Several controllers may use one log: the LogStore reports a Conflict (docs/decisions/0015-the-log-seam.md).
    """

    def __init__(self, log: PartitionLog, flusher: LogFlusher) -> None:
        self._log = log
        self._flusher = flusher
        self._records = PartitionCoordinatorLog(log, flusher)
        self._end_offset = log.log_start_offset
        self._appended: Ticket | None = None
        """The last append, if it ends at `end_offset`."""

    @property
    def end_offset(self) -> int:
        return self._end_offset

    def append(self, values: Sequence[bytes], now_ms: int) -> LogTicket:
        """Append `values` as one atomic batch. Raises LogSuperseded, and LogWriteFailed if the log rejects it."""
        batch = build_batch([(now_ms, None, value, ()) for value in values])
        info = self._log.append(batch, AppendOrigin.COORDINATOR, now_ms, expected_offset=self._end_offset)
        if info.error is ErrorCode.NONE:
            self._end_offset, self._appended = info.end_offset, info
            return LogTicket(self._flusher, info)
        why = f"{self._log.tp} rejected a batch: {info.error.name} {info.message or ''}"
        if info.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise LogSuperseded(ErrorCode.NOT_CONTROLLER, why)
        raise LogWriteFailed(info.error, why)

    @property
    def newest(self) -> LogTicket:
        return LogTicket(self._flusher, self._appended or Ticket(self._log, self._end_offset))

    @contextmanager
    def in_one_commit(self) -> Iterator[bool]:
        late = self._log.segments.late
        if late is None:
            yield False
            return
        late.hold()
        try:
            yield True
        finally:
            late.release()

    def read(self) -> Iterator[LoggedBatch]:
        for next_offset, batch in self._records.replay_from(self._end_offset):
            self._end_offset, self._appended = next_offset, None
            values = None if batch.marker_commits is not None else [value or b"" for _, value in batch.records]
            yield LoggedBatch(batch.base_offset, next_offset, batch.timestamp_ms, values)

    def seek(self, offset: int) -> None:
        if not self._log.log_start_offset <= offset <= self._log.log_end_offset:
            why = f"holds offsets {self._log.log_start_offset} to {self._log.log_end_offset}, not {offset}"
            raise LogUnreadable(f"{self._log.store.place} {why}")
        self._end_offset, self._appended = offset, None


class MetadataLossNotAccepted(Exception):
    """The metadata log of a broker with users or rights is damaged: the text says what to do."""


def open_metadata_log(logs: LogManager, flusher: LogFlusher, config: LogConfig, secured: bool) -> PartitionLog:
    """The metadata log up to its first damaged batch, or from a snapshot that covers more. Raises OSError.

    `secured`: raises MetadataLossNotAccepted for a damaged log, unless the operator has accepted the loss. The lost
    part may have deleted a user, changed a password or denied a right.
    """
    logs.expect(lambda tp: tp == METADATA_PARTITION)
    files = logs.files(METADATA_PARTITION)
    accepted = files.load(ACCEPT_LOSS) is not None
    if accepted:
        files.remove(ACCEPT_LOSS)  # otherwise the log is cut before it is copied
    try:
        if not logs.clean:
            need_no_batch_after_damage(files)
        log = logs.create(METADATA_PARTITION, METADATA_TOPIC_ID, config, only_topic=True)
        for _ in PartitionCoordinatorLog(log, flusher).replay():
            pass
    except (CorruptLogFile, LogUnreadable) as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from error
        if secured and not accepted:
            raise MetadataLossNotAccepted(
                f"the metadata log is damaged: {error}. Without the changes after that, deleted users and old passwords"
                f" would be valid again, and rules that deny access would be gone. Restore {logs.place}/"
                f"{METADATA_PARTITION} from a backup. Or put an empty file {ACCEPT_LOSS} into it to accept the loss;"
                " then check users and rules before clients connect"
            ) from error
        aside = logs.quarantine(METADATA_PARTITION)
        behind = begin_behind_snapshot(logs.files(METADATA_PARTITION))
        log = logs.create(METADATA_PARTITION, METADATA_TOPIC_ID, config, only_topic=True)
        logger.error(
            "the metadata log is damaged; the broker continues from offset %d%s: %s. A full copy is in %s/%s. Later"
            " topics and settings are unknown; their logs are kept. Stop the broker and restore %s from a backup, or"
            " delete the copy to accept the loss",
            log.log_end_offset,
            "" if behind is None else ", where the newest snapshot ends",
            error,
            logs.place,
            aside,
            METADATA_PARTITION,
        )
    return log


def first_free_producer_id(logs: LogManager) -> int:
    """The lowest producer id that lost metadata cannot have allocated."""
    return logs.quarantined(METADATA_PARTITION) * _IDS_PER_LOSS
