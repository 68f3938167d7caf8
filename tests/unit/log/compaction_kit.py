"""Compactions at will: keyed batches, passes made in one go or stopped at any step, and what readers see after them."""

from collections.abc import Iterable, Mapping

from fencepost.broker.log.compaction.cleanable import CleanableRange, cleanable_range
from fencepost.broker.log.compaction.cleaning import Cleaning, CleaningLimits, Steps, drive
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import read_batches
from fencepost.broker.log.storage.segments import Segments
from fencepost.protocol.batch_header import BatchHeader, iter_headers
from fencepost.protocol.compression import Compression
from fencepost.protocol.isolation import AbortedFilter
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record, decode_records
from fencepost.protocol.topics import IsolationLevel
from tests.unit.log.kit import COMMITTED, NOW_MS, UNCOMMITTED, joined, send

HOUR_MS = 3600 * 1000
COMPACT = LogConfig(
    segment_bytes=2000,
    index_interval_bytes=100,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=HOUR_MS,
    retention_ms=-1,
)
LIMITS = CleaningLimits(1 << 20)

Pair = tuple[str, str | None]


def keyed(
    pairs: Iterable[Pair],
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    *,
    transactional: bool = False,
    timestamp_ms: int = NOW_MS,
    compression: Compression = Compression.NONE,
) -> bytearray:
    """A client's batch of (key, value) pairs; None is a tombstone."""
    return build_batch(
        [(timestamp_ms, key.encode(), None if value is None else value.encode(), ()) for key, value in pairs],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        compression=compression,
    )


def put(log: PartitionLog, *pairs: Pair, timestamp_ms: int = NOW_MS) -> int:
    """Append a batch without a producer; its first offset."""
    info = send(log, keyed(pairs, timestamp_ms=timestamp_ms))
    assert not info.error, info
    return info.base_offset


def transact(log: PartitionLog, producer_id: int, epoch: int, sequence: int, *pairs: Pair) -> int:
    """Append a batch to the producer's transaction; its first offset."""
    info = send(log, keyed(pairs, producer_id, epoch, sequence, transactional=True))
    assert not info.error, info
    return info.base_offset


def segments_of(log: PartitionLog) -> Segments:
    """The segments below a log."""
    assert isinstance(log.segments, Segments)
    return log.segments


def range_of(log: PartitionLog, cleaned_to: int = 0, now_ms: int = NOW_MS) -> CleanableRange:
    """What the log offers to a compaction."""
    return cleanable_range(
        segments_of(log), log.config, cleaned_to, log.log_start_offset, log.last_stable_offset, now_ms
    )


def begin(
    log: PartitionLog, cleaned_to: int = 0, now_ms: int = NOW_MS, limits: CleaningLimits = LIMITS
) -> tuple[Cleaning, Steps]:
    """A compaction that waits for its steps."""
    cleaning = Cleaning(log, range_of(log, cleaned_to, now_ms), limits, now_ms)
    return cleaning, cleaning.run()


def clean(
    log: PartitionLog, cleaned_to: int = 0, now_ms: int = NOW_MS, limits: CleaningLimits = LIMITS, roll: bool = True
) -> Cleaning:
    """Close the active segment and compact everything that may be compacted, in one go."""
    if roll and segments_of(log).active.size_bytes:
        log.roll(now_ms)
    cleaning, steps = begin(log, cleaned_to, now_ms, limits)
    drive(steps)
    return cleaning


def batches(log: PartitionLog, isolation: IsolationLevel = UNCOMMITTED) -> list[tuple[BatchHeader, list[Record]]]:
    """All batches with their records, as a reader comes by them; aborted and control ones with an empty list if
    `isolation` is read_committed."""
    found: list[tuple[BatchHeader, list[Record]]] = []
    offset = log.log_start_offset
    while True:
        result = read_batches(log, offset, 300, isolation)
        assert not result.error, result
        if not result.size_bytes:
            return found
        data = joined(result.parts)
        admits = AbortedFilter(result.aborted)
        for at, header in iter_headers(data):
            seen = isolation is UNCOMMITTED or admits.admits(header, data, at)
            records = decode_records(data, at, header) if seen else []
            found.append((header, [record for record in records if record.offset >= log.log_start_offset]))
            offset = header.next_offset


def seen(log: PartitionLog, isolation: IsolationLevel = COMMITTED) -> dict[str, str]:
    """The table that a reader of committed data builds from the log."""
    table: dict[str, str] = {}
    for header, records in batches(log, isolation):
        if header.is_control:
            continue
        for record in records:
            assert record.key is not None
            table[record.key.decode()] = "" if record.value is None else record.value.decode()
            if record.value is None:
                del table[record.key.decode()]
    return table


def records(log: PartitionLog) -> list[tuple[int, str, str | None]]:
    """(offset, key, value) of every data record in the log, whatever became of its transaction."""
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for header, found in batches(log)
        if not header.is_control
        for record in found
    ]


def spans(log: PartitionLog) -> Mapping[int, tuple[int, int]]:
    """Base offset -> (last offset, record count) of every batch."""
    return {header.base_offset: (header.last_offset, header.record_count) for header, _ in batches(log)}
