"""Deletes the oldest records of a log: DeleteRecords, and retention by time and size (rows L3 and L6)."""

import errno
import logging
from collections.abc import Sequence

from fencepost.broker.log.durability.upkeep import Steps
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.retention import SegmentFacts, below, deletable
from fencepost.broker.log.storage.store import FlushFailed
from fencepost.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


def deleting_records(log: PartitionLog, offset: int) -> Steps[tuple[ErrorCode, int]]:
    """Hide the records below `offset` (-1: the high watermark) permanently, and delete the segments below it.

    Returns the new log start offset, durable if the log is on disk. OFFSET_OUT_OF_RANGE beyond the high watermark.
    A segment in or after which an open transaction begins stays until the transaction is decided, unless
    `retention_spares_open_transactions` is off.
    """
    before = log.log_start_offset
    if log.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR, before
    target = log.high_watermark if offset == -1 else offset
    if target < 0 or target > log.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE, -1
    log.raise_log_start(target)
    try:
        yield log.log_start_files()  # also if the start is there already: it may not be durable yet
        if target > before:
            yield from deleting_segments(log, 0)
    except OSError as error:
        logger.error("deleting records of %s failed: %s", log.tp, error)
        if isinstance(error, FlushFailed) and error.is_in(log.store.place):
            log.take_offline(error)  # not for the file of all log starts: the next write of it is a whole new file
        return ErrorCode.KAFKA_STORAGE_ERROR, before
    if target > before:
        log.wake()
    return ErrorCode.NONE, log.log_start_offset


def housekeep(log: PartitionLog, now_ms: int) -> bool:
    """Expire idle producers, and raise the log start by time and size. Raises OSError.

    Returns whether segments are due: when the log start is durable, `deleting_segments` deletes them. Otherwise a start
    could not tell them from lost ones.
    """
    if log.offline:
        return False
    if log.segments.is_deleted:
        raise FlushFailed(
            errno.ENOENT, "the newest segment was deleted, and what was appended with it", log.store.place
        )
    log.forget_producers(now_ms)
    facts = log.segments.facts()
    count = deletable(facts, log.config, now_ms, log.log_start_offset, _bound(log))
    if not count:
        return False
    before = log.log_start_offset
    log.raise_log_start(facts[count - 1].next_offset)
    if log.log_start_offset > before:
        log.wake()
    return True


def _bound(log: PartitionLog) -> int:
    """No segment above it is deleted."""
    spares = log.config.retention_spares_open_transactions
    undecided = log.producers.first_undecided_offset() if spares else None
    return log.high_watermark if undecided is None else min(log.high_watermark, undecided)


def deleting_segments(log: PartitionLog, now_ms: int) -> Steps[None]:
    """Delete the segments below the log start, which is durable. Raises OSError."""
    facts = log.segments.facts()
    count = below(facts, min(_bound(log), log.log_start_offset))
    if not count or log.offline:
        return
    if log.segments.keeps_producers:
        log.later(log.segments.drop_front(count))
    else:
        count = yield from _keeping_producers(log, facts, count, now_ms)
        if not count:
            return
        log.later(log.segments.drop_front(count))
        log.later(log.snapshots.remove_before(log.segments.first_offset))
    logger.info("deleted segments partition=%s count=%d below_offset=%d", log.tp, count, log.segments.first_offset)


def _keeping_producers(log: PartitionLog, facts: Sequence[SegmentFacts], count: int, now_ms: int) -> Steps[int]:
    """Make durable what the producers' state needs of the oldest `count` segments. Returns how many may go then."""
    if count == len(facts):
        log.roll(now_ms)  # an empty file holds the next offset
        yield log.take_snapshot()
    # Only the snapshot at the new start holds the producers' state from the deleted data: it must be durable first. So
    # must the snapshots between, because a crash can come before all segments are deleted. On a full disk it may lack.
    ends = [fact.next_offset for fact in facts[:count]]
    yield [*(target for end in ends for target in log.snapshots.sync_targets(end)), *log.store.entry_targets()]
    # Meanwhile other tasks may have deleted or compacted some of them: continue with the current segments.
    ends = [fact.next_offset for fact in log.segments.facts()[:-1] if fact.next_offset <= ends[-1]]
    while ends and not log.snapshots.has(ends[-1]):
        ends.pop()
    return len(ends) if log.writable else 0
