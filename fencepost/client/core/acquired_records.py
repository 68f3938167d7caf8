"""What a response's acquired ranges hold: records for the program, gaps, and what cannot be read (KIP-932)."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from fencepost.protocol.batch_header import (
    Buffer,
    CorruptBatch,
    OversizedBatch,
    UnreadableBatch,
    crc_fits,
    iter_headers,
)
from fencepost.protocol.records import Record, decode_records


class AcquiredRange(NamedTuple):
    """Offsets that the broker acquired for this member, both ends included."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcquiredRecords(NamedTuple):
    """Every acquired offset is in one of the first three.

    `damaged` offsets are of batches with a wrong CRC or records that cannot be decoded, `unread` ones of batches that
    are too large for this client, or that are not in the response.
    """

    records: list[tuple[Record, int]]
    gaps: list[int]
    damaged: list[int]
    unread: list[int]
    errors: list[UnreadableBatch]


def sort_out(
    buffer: Buffer | None, ranges: Iterable[AcquiredRange], check_crcs: bool, limit_bytes: int
) -> AcquiredRecords:
    """Divide the acquired offsets by what `buffer` has at them.

    A response has whole batches, also with records that other members have. An acquired offset without a record is a
    gap, a batch with a wrong CRC is rejected as a whole (ShareCompletedFetch.fetchRecords, rejectRecordBatch).
    `limit_bytes` bounds a batch after decompression.
    """
    counts = {offset: count for first, last, count in ranges for offset in range(first, last + 1)}
    offsets = sorted(counts)
    found = AcquiredRecords([], [], [], [], [])
    view = memoryview(buffer or b"")
    end_of_batches = -1
    try:
        for start, header in iter_headers(view):
            end_of_batches = header.last_offset
            inside = offsets[bisect_left(offsets, header.base_offset) : bisect_left(offsets, header.next_offset)]
            if header.is_control or not inside:
                continue
            try:
                if check_crcs and not crc_fits(view, start, header):
                    raise CorruptBatch(f"batch at offset {header.base_offset}: the CRC is wrong")
                records = decode_records(view, start, header, limit_bytes)
            except UnreadableBatch as wrong:
                found.errors.append(wrong)
                kind = found.unread if isinstance(wrong, OversizedBatch) else found.damaged
                kind += [offset for offset in inside if counts.pop(offset, None) is not None]
            else:
                found.records.extend((one, counts.pop(one.offset)) for one in records if one.offset in counts)
    except CorruptBatch as wrong:
        found.errors.append(wrong)
        found.unread.extend(offset for offset in counts if offset > end_of_batches)
        for offset in found.unread:
            counts.pop(offset, None)
    found.gaps.extend(sorted(counts))
    return found
