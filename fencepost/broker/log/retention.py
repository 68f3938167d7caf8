"""Which of the oldest segments retention deletes: by time, by size, and by the log start offset (row L3). Pure.

Kafka bounds deletion by the high watermark only, and may delete an open transaction's first records (section 0, row
20). This log keeps them: a segment in or after which an open transaction begins stays until the transaction is decided.
Without `log.retention.spares.open.transactions` it deletes as Kafka does.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.broker.log.config import LogConfig


class SegmentFacts(NamedTuple):
    """The facts that retention needs of one segment."""

    next_offset: int
    size_bytes: int
    last_time_ms: int
    """Its largest timestamp, or when it was last written; -1 if neither is known: then time never deletes it."""


def deletable(
    segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int, log_start_offset: int, bound_offset: int
) -> int:
    """The number of oldest segments to delete.

    No segment above `bound_offset` is deleted: the high watermark, or the first offset of the oldest open transaction.
    """
    surplus_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    by_size = config.deletes and config.retention_bytes >= 0
    by_time = config.deletes and config.retention_ms >= 0
    count = 0
    for number, segment in enumerate(segments, 1):
        if segment.next_offset > bound_offset or (number == len(segments) and not segment.size_bytes):
            break
        expired = by_time and 0 <= segment.last_time_ms < now_ms - config.retention_ms
        oversized = by_size and surplus_bytes >= segment.size_bytes
        if not (expired or oversized or segment.next_offset <= log_start_offset):
            break
        surplus_bytes -= segment.size_bytes
        count += 1
    return count


def below(segments: Sequence[SegmentFacts], offset: int) -> int:
    """The number of oldest segments that end at `offset` or before, without an empty active one."""
    count = sum(segment.next_offset <= offset for segment in segments)
    return count - 1 if count == len(segments) and not segments[-1].size_bytes else count
