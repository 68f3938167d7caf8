"""Reads of a log for a share group: whole batches, no more than it can acquire, and which of them are aborted."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fencepost.broker.log.log_store import Missing
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import load, read_batches
from fencepost.broker.share.values import DELAY_MS_MAX, Acquired, Fetched, held_until
from fencepost.protocol.batch_header import BatchHeader, UnreadableBatch, iter_headers
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.isolation import AbortedFilter
from fencepost.protocol.not_before import IN_A_BATCH, not_before_ms
from fencepost.protocol.records import decode_unpacked, unpack_records
from fencepost.protocol.topics import IsolationLevel

STEP_BYTES = 256 << 10
"""The most that is read at first: a member often wants less than the bytes that it has room for."""
RECORD_BYTES = 256
"""A guess at a record's size: the first read takes this for each that is wanted, the next one twice what came."""

INLINE_BYTES = 4096
"""Larger compressed batches are unpacked in a thread: they may hold a thousand times as much."""
Times = Sequence[tuple[int, int]]
"""Offsets in order, each with a time in ms."""


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


class LaterRecords:
    """Finds which of the records that were read have a time to come in their header, batch by batch."""

    def __init__(self, max_bytes: int, wall_ms: int, lock_ms: int) -> None:
        """`max_bytes` bounds an unpacked batch; the others are the time now, by the wall clock and by that of locks."""
        self._max_bytes, self._wall_ms, self._lock_ms = max_bytes, wall_ms, lock_ms

    def find(
        self, read: SharedRead, has_new: Callable[[int, int], bool], known: Mapping[int, Times], enough: int
    ) -> SharedRead | tuple[BatchHeader, memoryview]:
        """The read with `Fetched.held`, cut where `enough` records may be acquired; or a batch for `times_in` first.

        Only batches that have new records are looked at. `known`: the times in batches, by their base offset.
        """
        held: list[tuple[int, int]] = []
        pieces, found = read.pieces, 0
        aborted = set(read.fetched.aborted)
        for at, (header, piece) in enumerate(pieces):
            first, last = header.base_offset, header.last_offset
            if header.is_control or (first, last) in aborted or not has_new(first, last):
                continue
            if found >= enough:
                pieces = pieces[:at]
                break
            times = known.get(first)
            if times is None and header.compression is not Compression.NONE and header.size_bytes > INLINE_BYTES:
                if not (held or found):
                    return header, piece
                pieces = pieces[:at]
                break
            if times is None:
                times = times_in(header, piece, self._max_bytes)
            later = [(offset, self._until(time_ms)) for offset, time_ms in times if time_ms > self._wall_ms]
            held += later
            found += last - first + 1 - len(later)
        batches = read.fetched.batches[: len(pieces)]
        return read._replace(fetched=read.fetched._replace(batches=batches, held=held), pieces=pieces)

    def _until(self, time_ms: int) -> int:
        """By the clock of locks. A later time is looked at again then."""
        return held_until(self._lock_ms + min(time_ms - self._wall_ms, DELAY_MS_MAX))


def times_in(header: BatchHeader, piece: memoryview, max_bytes: int) -> Times:
    """The times in the headers of a batch's records.

    None of a batch that cannot be read: members get it, and say what is wrong.
    """
    try:
        unpacked = unpack_records(piece, 0, header, max_bytes)
        if IN_A_BATCH not in unpacked:
            return ()
        records = decode_unpacked(unpacked, header)
    except UnreadableBatch:
        return ()
    found = ((record.offset, not_before_ms(record.headers)) for record in records)
    return [(offset, time_ms) for offset, time_ms in found if time_ms is not None]
