"""Finding records by their time (row I6, KIP-734)."""

from collections.abc import Iterator

from fencepost.broker.log.log_store import FoundTime
from fencepost.broker.log.segment import Segment
from fencepost.broker.log.store import CorruptLogFile
from fencepost.protocol.record_batch import CorruptBatch, read_header
from fencepost.protocol.records import Record, decode_records


def first_at_or_after(
    segments: Iterator[Segment], timestamp_ms: int, start_offset: int, upper_offset: int
) -> FoundTime | None:
    """The first record from `start_offset` below `upper_offset` that is not earlier than `timestamp_ms` (row I6).

    Raises CorruptLogFile and OSError.
    """
    for segment in segments:
        if segment.base_offset >= upper_offset:
            break
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        from_offset = max(start_offset, segment.base_offset + segment.times.offset_before(timestamp_ms))
        for step in segment.walk(segment.position_of(from_offset)):
            if step.base_offset >= upper_offset:
                return None
            if step.max_timestamp_ms < timestamp_ms:
                continue
            for record in _records(segment, step.position, step.size_bytes):
                if record.timestamp_ms >= timestamp_ms and start_offset <= record.offset < upper_offset:
                    return FoundTime(record.timestamp_ms, record.offset)
    return None


def latest(segments: Iterator[Segment], start_offset: int, upper_offset: int) -> FoundTime | None:
    """The first record with the largest timestamp from `start_offset` below `upper_offset` (KIP-734).

    Raises CorruptLogFile and OSError.
    """
    best: tuple[int, int, Segment] | None = None
    for segment in segments:
        if segment.base_offset >= upper_offset:
            break
        timestamp_ms, offset = segment.max_timestamp_ms, segment.max_timestamp_offset
        if offset >= upper_offset:
            timestamp_ms, offset = _largest_below(segment, upper_offset)
        if timestamp_ms >= 0 and (best is None or timestamp_ms > best[0]):
            best = timestamp_ms, offset, segment
    if best is None:
        return None
    timestamp_ms, offset, segment = best
    for step in segment.walk(segment.position_of(offset)):
        for record in _records(segment, step.position, step.size_bytes):
            if record.timestamp_ms >= timestamp_ms and start_offset <= record.offset < upper_offset:
                return FoundTime(record.timestamp_ms, record.offset)
        if step.last_offset >= upper_offset:
            break
    return None


def _largest_below(segment: Segment, upper_offset: int) -> tuple[int, int]:
    """The largest timestamp of batches below `upper_offset` and the last offset of its batch, by index and walk."""
    timestamp_ms, relative_offset = segment.times.latest_before(upper_offset - segment.base_offset)
    offset = segment.base_offset + relative_offset
    for step in segment.walk(segment.position_of(offset)):
        if step.last_offset >= upper_offset:
            break
        if step.max_timestamp_ms > timestamp_ms:
            timestamp_ms, offset = step.max_timestamp_ms, step.last_offset
    return timestamp_ms, offset


def _records(segment: Segment, position: int, size_bytes: int) -> list[Record]:
    data = segment.file.read(position, size_bytes)
    try:
        return decode_records(data, 0, read_header(data))
    except CorruptBatch as error:
        raise CorruptLogFile(segment.file.place, position, str(error)) from error
