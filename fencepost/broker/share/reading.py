"""Reads of a log for a share group: whole batches, no more than it can acquire, and which of them are aborted."""

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.broker.log.log_store import Missing
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import load, read_batches
from fencepost.broker.share.values import Acquired, Fetched
from fencepost.protocol.batch_header import BatchHeader, iter_headers
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.isolation import AbortedFilter
from fencepost.protocol.topics import IsolationLevel

STEP_BYTES = 256 << 10
"""The most that is read at first: a member often wants less than the bytes that it has room for."""
RECORD_BYTES = 256
"""A guess at a record's size: the first read takes this for each that is wanted, the next one twice what came."""


class SharedRead(NamedTuple):
    """What was read for one acquisition."""

    error: ErrorCode
    fetched: Fetched
    pieces: list[tuple[BatchHeader, memoryview]]
    missing: Missing | None = None
    """Bytes that are not in this process yet; the log wakes its watchers when they arrive."""

    def records(self, acquired: Sequence[Acquired]) -> list[memoryview]:
        """The batches from the first to the last acquired record (Kafka's `ShareFetchUtils.maybeSliceFetchRecords`)."""
        first, last = acquired[0].first_offset, acquired[-1].last_offset
        return [piece for header, piece in self.pieces if header.last_offset >= first and header.base_offset <= last]


def read_for(
    log: PartitionLog,
    offset: int,
    max_bytes: int,
    max_records: int,
    isolation: IsolationLevel,
    *,
    at_least_one: bool = True,
) -> SharedRead:
    """Whole batches from `offset` on, until they hold `max_records` offsets.

    `at_least_one`: the first one may be longer than `max_bytes`.
    """
    pieces: list[tuple[BatchHeader, memoryview]] = []
    aborted: list[tuple[int, int]] = []
    at, left = offset, max_bytes
    error, missing = NO_ERROR, None
    step = min(max_records * RECORD_BYTES, STEP_BYTES) if at_least_one else STEP_BYTES
    while left > 0 and at - offset < max_records:
        result = read_batches(log, at, min(left, step), isolation, at_least_one=at_least_one and not pieces)
        error, missing = result.error, result.missing
        if error or missing or not result.size_bytes:
            break
        data = b"".join(map(load, result.parts))
        admits = AbortedFilter(result.aborted).admits
        for start, header in iter_headers(data):
            pieces.append((header, memoryview(data)[start : start + header.size_bytes]))
            if not admits(header, data, start) and not header.is_control:
                aborted.append((header.base_offset, header.last_offset))
            at = header.next_offset
        left -= len(data)
        step = 2 * max(step, len(data))
    if pieces:
        error, missing = NO_ERROR, None
    batches = [(header.base_offset, header.last_offset) for header, _ in pieces]
    return SharedRead(error, Fetched(offset, batches, aborted), pieces, missing)
