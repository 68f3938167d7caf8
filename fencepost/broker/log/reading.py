"""Reads of a partition log: batches up to a bound, and offsets by time and by leader epoch (section A.3)."""

import itertools
import logging
import os
from typing import Final, NamedTuple

from fencepost.broker.log.filtering import FilterBudget, read_without_aborted
from fencepost.broker.log.log_store import FoundTime, Missing
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.store import CorruptLogFile, FileRegion, Piece, is_shortage
from fencepost.protocol.batch_header import CorruptBatch, iter_headers
from fencepost.protocol.control_records import ControlType, read_marker
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.topics import IsolationLevel

READ_COMMITTED: Final = IsolationLevel.READ_COMMITTED
"""A global: reading a member of an enum takes twenty times as long as reading a name."""

MARKER_READ_BYTES = 1 << 20

logger = logging.getLogger(__name__)


class ReadResult(NamedTuple):
    error: ErrorCode
    parts: list[Piece]
    """Whole batches, in order; large runs as file regions."""
    size_bytes: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    """(producer id, first offset) of the aborted transactions that overlap the batches; None for read_uncommitted."""
    missing: Missing | None = None
    """Set if the batches' bytes are not in this process yet; the log wakes its watchers when they arrive."""


class TimestampOffset(NamedTuple):
    """A record found by its time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def read_batches(
    log: PartitionLog,
    offset: int,
    max_bytes: int,
    isolation: IsolationLevel,
    at_least_one: bool = True,
    budget: FilterBudget | None = None,
) -> ReadResult:
    """Whole batches from the one that holds `offset` on, up to the bound of `isolation`.

    With `budget` a read_committed reader gets no batches of aborted transactions, though their markers; see
    `read_without_aborted`.

    At most `max_bytes`, except for the first batch, which is returned whole if `at_least_one` is set. An offset from
    the bound to the log end returns no batches; an offset outside the log returns OFFSET_OUT_OF_RANGE.
    """
    committed = isolation == READ_COMMITTED
    high_watermark, stable = log.high_watermark, log.last_stable_offset
    upper_offset = stable if committed else high_watermark
    start = log.log_start_offset
    if not start <= offset <= log.segments.end_offset or log.disowned:
        error = log.disowned_error if log.disowned else ErrorCode.OFFSET_OUT_OF_RANGE
        return ReadResult(error, [], 0, high_watermark, stable, start, [] if committed else None)
    if offset >= upper_offset:
        return ReadResult(NO_ERROR, [], 0, high_watermark, stable, start, [] if committed else None)
    aborted: list[tuple[int, int]] | None = None
    try:
        if committed and budget is not None and budget.left > 0:
            bounds = offset, upper_offset, max_bytes
            extent, overlapping = read_without_aborted(log.segments, *bounds, at_least_one, budget)
        else:
            extent = log.segments.read(offset, upper_offset, max_bytes, at_least_one)
            read_some = committed and extent.size_bytes
            overlapping = log.segments.aborted_between(offset, extent.end_offset) if read_some else []
        parts, size_bytes, _, missing = extent
        if committed:
            aborted = [(entry.producer_id, entry.first_offset) for entry in overlapping]
    except (OSError, CorruptLogFile, CorruptBatch) as error:
        logger.error("reading %s at offset %d failed: %s", log.tp, offset, error)
        return ReadResult(_error_of(error), [], 0, high_watermark, stable, start, aborted)
    return ReadResult(NO_ERROR, parts, size_bytes, high_watermark, stable, start, aborted, missing)


def _error_of(error: Exception) -> ErrorCode:
    if is_shortage(error):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # the reader tries again
    return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, OSError) else ErrorCode.CORRUPT_MESSAGE


def readable_bytes(log: PartitionLog, offset: int, isolation: IsolationLevel) -> int:
    """Bytes that a reader at `offset` could read now (row I7: read_committed counts up to the LSO only).

    Raises CorruptLogFile and OSError.
    """
    upper_offset = _upper(log, isolation)
    offset = max(offset, log.log_start_offset)
    return 0 if offset >= upper_offset else log.segments.bytes_between(offset, upper_offset)


def offset_for_timestamp(
    log: PartitionLog, timestamp_ms: int, isolation: IsolationLevel
) -> TimestampOffset | Missing | None:
    """The first record with at least `timestamp_ms` that a reader of `isolation` may see (row I6).

    Raises CorruptLogFile and OSError.
    """
    found = log.segments.first_at_or_after(timestamp_ms, log.log_start_offset, _upper(log, isolation))
    return _with_epoch(log, found)


def max_timestamp_offset(
    log: PartitionLog, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
) -> TimestampOffset | Missing | None:
    """The first record with the largest timestamp (KIP-734). Raises CorruptLogFile and OSError."""
    return _with_epoch(log, log.segments.latest(log.log_start_offset, _upper(log, isolation)))


def epoch_end_offset(log: PartitionLog, epoch: int) -> tuple[int, int]:
    """The largest known epoch at or below `epoch` and its end offset; (-1, -1) if unknown (row L10).

    The current epoch is known before its first record is written.
    """
    if epoch == log.leader_epoch:
        return epoch, log.log_end_offset
    return log.epochs.end_offset(epoch, log.log_end_offset)


def _with_epoch(log: PartitionLog, found: FoundTime | Missing | None) -> TimestampOffset | Missing | None:
    return TimestampOffset(*found, log.epochs.epoch_of(found.offset)) if isinstance(found, FoundTime) else found


def _upper(log: PartitionLog, isolation: IsolationLevel) -> int:
    return log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark


def last_marker(log: PartitionLog, producer_id: int, marker_epoch: int) -> bool | None:
    """Whether the producer's last marker of this epoch is a COMMIT; None if the log has none.

    It may not be durable yet. The newest segments are read first. Raises CorruptLogFile, CorruptBatch and OSError.
    """
    bounds = [log.segments.first_offset, *(fact.next_offset for fact in log.segments.facts())]
    for begin, end in reversed(list(itertools.pairwise(bounds))):
        commits: bool | None = None
        offset = begin
        while offset < end:
            extent = log.segments.read(offset, end, MARKER_READ_BYTES, True)
            data = b"".join(map(load, extent.parts))
            for position, header in iter_headers(data):
                is_of = (header.producer_id, header.producer_epoch) == (producer_id, marker_epoch)
                if is_of and header.is_control and header.record_count:  # compaction may have emptied it
                    commits = read_marker(data, position, header).type is ControlType.COMMIT
            if extent.end_offset <= offset:
                break
            offset = extent.end_offset
        if commits is not None:
            return commits
    return None


def load(part: Piece) -> bytes:
    """The bytes of one piece of a read, from memory or from its file."""
    if not isinstance(part, FileRegion):
        return bytes(part)
    parts, offset, left = [], part.offset, len(part)
    while left:
        data = os.pread(part.fd, left, offset)
        if not data:
            raise OSError(f"the log file ended {left} bytes before the region that was to be read")
        parts.append(data)
        offset += len(data)
        left -= len(data)
    return b"".join(parts)
