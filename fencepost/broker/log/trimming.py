"""Taking the front of a log away: DeleteRecords, and retention by time and size (rows L3 and L6)."""

import logging
from typing import TYPE_CHECKING

from fencepost.broker.log.durability.upkeep import Steps, at_once
from fencepost.broker.log.retention import deletable
from fencepost.broker.log.storage.store import FlushFailed
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.log.partition import PartitionLog

logger = logging.getLogger(__name__)


class LogTrimmer:
    """Moves the start of one log forward and deletes the segments below it."""

    def __init__(self, log: "PartitionLog") -> None:
        self._log = log

    def delete_records(self, offset: int) -> tuple[ErrorCode, int]:
        """`deleting_records` at once, for tests and tools."""
        return at_once(self.deleting_records(offset))

    def deleting_records(self, offset: int) -> Steps[tuple[ErrorCode, int]]:
        """Hide what lies below `offset` (-1: the high watermark) for good and delete the segments it frees.

        Returns the new log start offset, durable if the log is on disk. OFFSET_OUT_OF_RANGE beyond the high watermark.
        A segment in or after which an open transaction begins stays until the transaction is decided, unless
        `retention_spares_open_transactions` is off.
        """
        before = self._log.log_start_offset
        if self._log.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR, before
        target = self._log.high_watermark if offset == -1 else offset
        if target < 0 or target > self._log.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE, -1
        self._log.raise_log_start(target)
        try:
            yield self._log.log_start_files()  # also if the start is there already: it may be on its way to the disk
            if target > before:
                yield from self._deleting_segments(0)
        except OSError as error:
            logger.error("deleting records of %s failed: %s", self._log.tp, error)
            if isinstance(error, FlushFailed):
                self._log.take_offline(error)
            return ErrorCode.KAFKA_STORAGE_ERROR, before
        if target > before:
            self._log.wake()
        return ErrorCode.NONE, self._log.log_start_offset

    def housekeep(self, now_ms: int) -> None:
        """`housekeeping` at once, for tests and tools."""
        at_once(self.housekeeping(now_ms))

    def housekeeping(self, now_ms: int) -> Steps[None]:
        """Retention by time and size, and forgetting idle producers. Raises OSError."""
        if not self._log.offline:
            self._log.forget_producers(now_ms)
            yield from self._deleting_segments(now_ms)

    def _deleting_segments(self, now_ms: int) -> Steps[None]:
        spares = self._log.config.retention_spares_open_transactions
        undecided = self._log.producers.first_undecided_offset() if spares else None
        bound = self._log.high_watermark if undecided is None else min(self._log.high_watermark, undecided)
        facts = self._log.segments.facts()
        count = deletable(facts, self._log.config, now_ms, self._log.log_start_offset, bound)
        if not count:
            return
        if count == len(facts):
            self._log.roll(now_ms)  # an empty file still says where offsets go on
            yield self._log.take_snapshot()
        # What the producers did in the data that goes stands only in the snapshot at the new start: it must last first,
        # and so must those between, for a crash can come before all are deleted. A full disk may have left it out.
        ends = [fact.next_offset for fact in facts[:count]]
        yield [
            *(target for end in ends for target in self._log.snapshots.sync_targets(end)),
            *self._log.store.entry_targets(),
        ]
        # Meanwhile others may have deleted some of them, or compacted: what follows stands for what is there now.
        ends = [fact.next_offset for fact in self._log.segments.facts()[:-1] if fact.next_offset <= ends[-1]]
        while ends and not self._log.snapshots.has(ends[-1]):
            ends.pop()
        if not ends or self._log.disowned or self._log.offline:
            return
        self._log.later(self._log.segments.drop_front(len(ends)))
        first_offset = self._log.segments.first_offset
        self._log.later(self._log.snapshots.remove_before(first_offset))
        moved = first_offset > self._log.log_start_offset
        self._log.raise_log_start(first_offset)
        logger.info("deleted %d segments of %s below offset %d", len(ends), self._log.tp, first_offset)
        if moved:
            self._log.wake()
