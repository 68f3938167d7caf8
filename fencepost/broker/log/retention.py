"""Which of the oldest segments may go: by time, by size, and by the log start offset (row L3). Pure.

Kafka bounds deletion by the high watermark only and may take an open transaction's first records away (section 0, row
20). The sources ask for more and so does this log, unless `log.retention.spares.open.transactions` is off: a segment in
which, or after which, an open transaction begins stays until the transaction is decided.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.broker.log.config import LogConfig


class SegmentFacts(NamedTuple):
    """What retention needs to know of one segment."""

    next_offset: int
    size_bytes: int
    last_time_ms: int
    """Its largest timestamp, or when it was last written; -1 where neither is known: time alone never deletes it."""


def deletable(
    segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int, log_start_offset: int, bound_offset: int
) -> int:
    """How many of the oldest segments go.

    `bound_offset` is what may not be passed: the high watermark, or the first offset of the oldest open transaction.
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
