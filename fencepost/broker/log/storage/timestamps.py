"""Finds records by their timestamp (row I6, KIP-734)."""

from collections.abc import Iterator
from operator import itemgetter

from fencepost.broker.log.log_store import FoundTime
from fencepost.broker.log.storage.segment import Segment
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.batch_header import CorruptBatch, UnreadableBatch, check_crc, read_header
from fencepost.protocol.records import Record, decode_records

DECODED_RECORDS_MAX = 50_000
DECODED_BYTES_MAX = 16 << 20
"""The largest batch that a search decodes: its records, and their bytes after decompression."""


def first_at_or_after(
    segments: Iterator[Segment], timestamp_ms: int, start_offset: int, upper_offset: int
) -> FoundTime | None:
    """The first record in [start_offset, upper_offset) with at least `timestamp_ms` (row I6).

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
            for record in _records(segment, step.position, step.size_bytes, start_offset):
                if record.timestamp_ms >= timestamp_ms and start_offset <= record.offset < upper_offset:
                    return FoundTime(record.timestamp_ms, record.offset)
    return None


def latest(segments: Iterator[Segment], start_offset: int, upper_offset: int) -> FoundTime | None:
    """The first record with the largest timestamp from `start_offset` below `upper_offset` (KIP-734).

    Raises CorruptLogFile and OSError.
    """
    bounds: list[tuple[int, int, Segment]] = []
    for segment in segments:
        if segment.base_offset >= upper_offset:
            break
        timestamp_ms, offset = segment.max_timestamp_ms, segment.max_timestamp_offset
        if offset >= upper_offset:
            timestamp_ms, offset = _largest_below(segment, upper_offset)
        if timestamp_ms >= 0:
            bounds.append((timestamp_ms, offset, segment))
    bounds.sort(key=itemgetter(0), reverse=True)
    best: FoundTime | None = None
    for timestamp_ms, offset, segment in bounds:
        if best is not None and best.timestamp_ms > timestamp_ms:
            break
        found = _record_at(segment, timestamp_ms, offset, start_offset, upper_offset)
        if found is None:  # compaction removed the record but kept its batch, or it is below the start
            found = _latest_record(segment, start_offset, upper_offset)
        if found is not None and (
            best is None or (found.timestamp_ms, -found.offset) > (best.timestamp_ms, -best.offset)
        ):
            best = found
    return best


def _record_at(
    segment: Segment, timestamp_ms: int, offset: int, start_offset: int, upper_offset: int
) -> FoundTime | None:
    """The record with that timestamp in the batch that holds `offset`."""
    step = next(segment.walk(segment.position_of(offset)), None)
    if step is None:
        return None
    for record in _records(segment, step.position, step.size_bytes, start_offset):
        if record.timestamp_ms >= timestamp_ms and start_offset <= record.offset < upper_offset:
            return FoundTime(record.timestamp_ms, record.offset)
    return None


def _latest_record(segment: Segment, start_offset: int, upper_offset: int) -> FoundTime | None:
    """Like `latest`, for one segment, by a walk over all of its batches."""
    best: FoundTime | None = None
    for step in segment.walk(segment.position_of(start_offset)):
        if step.base_offset >= upper_offset:
            break
        if best is not None and step.max_timestamp_ms <= best.timestamp_ms:
            continue
        for record in _records(segment, step.position, step.size_bytes, start_offset):
            if start_offset <= record.offset < upper_offset and (
                best is None or record.timestamp_ms > best.timestamp_ms
            ):
                best = FoundTime(record.timestamp_ms, record.offset)
    return best


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


def _records(segment: Segment, position: int, size_bytes: int, start_offset: int) -> list[Record]:
    """The records of a batch. Raises CorruptLogFile if the batch is damaged.

    A batch that is too large to decode here, or that its producer sent with wrong records, counts as one record: its
    first offset with its largest timestamp. A reader that begins there misses nothing.
    """
    data = segment.file.read(position, size_bytes)
    try:
        header = read_header(data)
    except CorruptBatch as error:
        raise CorruptLogFile(segment.file.place, position, str(error)) from error
    try:
        if header.record_count <= DECODED_RECORDS_MAX:
            return decode_records(data, 0, header, DECODED_BYTES_MAX)
    except UnreadableBatch as error:
        if not check_crc(data, 0, header):
            raise CorruptLogFile(segment.file.place, position, str(error)) from error
    return [Record(max(header.base_offset, start_offset), header.max_timestamp, None, None)]
