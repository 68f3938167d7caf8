"""What readers see of a partition: its bounds, its batches, and who is woken when more can be seen (section A.3)."""

import logging

from fencepost.broker.log.log_store import FoundTime, Missing, OpenedLog, StoredLog
from fencepost.broker.log.producer_state import OpenTransaction
from fencepost.broker.log.results import ReadResult, TimestampOffset, Watcher
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import IsolationLevel, TopicPartition

LATE_AFTER_MS = 5 * 60 * 1000
"""Kafka's grace: a transaction is late when it is still open so long after the longest timeout there may be (T10)."""

logger = logging.getLogger(__name__)


class ReadableLog:
    """The reading half of a partition log.

    The last stable offset is derived from the producers' state and the high watermark each time it is asked for (I1).
    """

    def __init__(self, tp: TopicPartition, opened: OpenedLog, log_start_offset: int) -> None:
        self.tp = tp
        self.segments: StoredLog = opened.segments
        self.producers = opened.producers
        self.epochs = opened.epochs
        self.leader_epoch = max(0, self.epochs.latest)
        self.disowned = False
        """The partition is not ours any more: deleted, or led by another broker. Nothing is taken or shown."""
        self._disowned_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._log_start_offset = max(log_start_offset, self.segments.first_offset)
        self._high_watermark = self.segments.end_offset
        self._watchers: dict[Watcher, None] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.tp} [{self.log_start_offset}, {self.log_end_offset})>"

    # Bounds

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._log_start_offset

    def raise_log_start(self, offset: int) -> None:
        """Hide what lies below `offset`; never moves back."""
        self._log_start_offset = max(self._log_start_offset, offset)

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get."""
        return self.segments.end_offset

    @property
    def high_watermark(self) -> int:
        """Readers see what lies below: in `fsync` durability what is durable, in `os` durability everything."""
        return self._high_watermark

    @property
    def first_unstable_offset(self) -> int | None:
        """The oldest offset without a verdict that is final for readers; None when all is decided (row I1)."""
        offset = self.producers.first_unstable_offset(self._high_watermark)
        return None if offset is None else max(offset, self._log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed data see what lies below (row I1)."""
        unstable = self.producers.first_unstable_offset(self._high_watermark)
        if unstable is None or unstable >= self._high_watermark:
            return self._high_watermark
        return max(unstable, self._log_start_offset)

    @property
    def size_bytes(self) -> int:
        """Bytes of batches kept."""
        return self.segments.size_bytes

    def has_open_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        """Whether the producer (in that epoch, if given) has a transaction open here."""
        return self.producers.has_open(producer_id, producer_epoch)

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions without a verdict, oldest first; the first one holds the LSO."""
        return list(self.producers.open_transactions())

    def has_late_transaction(self, now_ms: int, timeout_max_ms: int) -> bool:
        """Whether the transaction that holds the LSO is idle for so long that it must be hanging (rows T10, T20).

        As Kafka's PartitionsWithLateTransactionsCount counts it: by the newest timestamp of the producer's batches.
        """
        oldest = next(self.producers.open_transactions(), None)
        if oldest is None or oldest.last_timestamp_ms < 0:
            return False
        return now_ms - oldest.last_timestamp_ms > timeout_max_ms + LATE_AFTER_MS

    # Reading

    def read(self, offset: int, max_bytes: int, isolation: IsolationLevel, at_least_one: bool = True) -> ReadResult:
        """Whole batches from the one that holds `offset` on, up to the bound of `isolation`.

        At most `max_bytes`, but for the first batch, which comes whole where `at_least_one` is set. An offset at the
        bound, or between it and the log end, gets nothing; one outside the log gets OFFSET_OUT_OF_RANGE.
        """
        committed = isolation == IsolationLevel.READ_COMMITTED
        high_watermark, stable = self._high_watermark, self.last_stable_offset
        upper_offset = stable if committed else high_watermark
        start = self._log_start_offset
        if not start <= offset <= self.segments.end_offset or self.disowned:
            error = self._disowned_error if self.disowned else ErrorCode.OFFSET_OUT_OF_RANGE
            return ReadResult(error, [], 0, high_watermark, stable, start, [] if committed else None)
        if offset >= upper_offset:
            return ReadResult(ErrorCode.NONE, [], 0, high_watermark, stable, start, [] if committed else None)
        aborted: list[tuple[int, int]] | None = None
        try:
            parts, size_bytes, end_offset, missing = self.segments.read(offset, upper_offset, max_bytes, at_least_one)
            if committed:
                overlapping = self.segments.aborted_between(offset, end_offset) if size_bytes else []
                aborted = [(entry.producer_id, entry.first_offset) for entry in overlapping]
        except (OSError, CorruptLogFile) as error:
            logger.error("reading %s at offset %d failed: %s", self.tp, offset, error)
            code = ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, OSError) else ErrorCode.CORRUPT_MESSAGE
            return ReadResult(code, [], 0, high_watermark, stable, start, aborted)
        return ReadResult(ErrorCode.NONE, parts, size_bytes, high_watermark, stable, start, aborted, missing)

    def readable_bytes(self, offset: int, isolation: IsolationLevel) -> int:
        """Bytes a reader at `offset` could get now (row I7: committed readers count up to the LSO only).

        Raises CorruptLogFile and OSError.
        """
        upper_offset = self._upper(isolation)
        offset = max(offset, self._log_start_offset)
        return 0 if offset >= upper_offset else self.segments.bytes_between(offset, upper_offset)

    def offset_for_timestamp(self, timestamp_ms: int, isolation: IsolationLevel) -> TimestampOffset | Missing | None:
        """The first record that is not earlier, if a reader of `isolation` may see it (row I6).

        Raises CorruptLogFile and OSError.
        """
        upper_offset = self._upper(isolation)
        found = self.segments.first_at_or_after(timestamp_ms, self._log_start_offset, upper_offset)
        return self._with_epoch(found)

    def max_timestamp_offset(
        self, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> TimestampOffset | Missing | None:
        """The first record with the largest timestamp (KIP-734). Raises CorruptLogFile and OSError."""
        return self._with_epoch(self.segments.latest(self._log_start_offset, self._upper(isolation)))

    def _with_epoch(self, found: FoundTime | Missing | None) -> TimestampOffset | Missing | None:
        return (
            found if not isinstance(found, FoundTime) else TimestampOffset(*found, self.epochs.epoch_of(found.offset))
        )

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch at or below `epoch` and the offset where it ended; (-1, -1) if unknown (row L10).

        The present epoch is known before its first record is written.
        """
        if epoch == self.leader_epoch:
            return epoch, self.log_end_offset
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def _upper(self, isolation: IsolationLevel) -> int:
        return self.last_stable_offset if isolation == IsolationLevel.READ_COMMITTED else self._high_watermark

    # Watching

    def add_watcher(self, watcher: Watcher) -> None:
        """Have `watcher.wake()` called whenever the high watermark or the LSO moves, and on deletion."""
        self._watchers[watcher] = None

    def remove_watcher(self, watcher: Watcher) -> None:
        """Stop that; no error if it was not watching."""
        self._watchers.pop(watcher, None)

    def wake(self) -> None:
        """Let all that watch look again: bounds moved, bytes arrived, or the partition is gone."""
        for watcher in tuple(self._watchers):
            watcher.wake()

    def advance_high_watermark(self, offset: int) -> None:
        """Show readers what lies below `offset`; never moves back. The LSO can only move when this does."""
        if offset <= self._high_watermark:
            return
        assert offset <= self.log_end_offset, "LSO <= high watermark <= log end offset"
        self._high_watermark = offset
        self.producers.settle(offset)
        if self._watchers:
            self.wake()
