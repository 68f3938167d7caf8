"""Where a row's bytes enter a broker: they are checked, and get the offsets and the leader epoch of the row.

A log's newest records are then kept in its tail: segments in the scratch directory, as with files.
"""

from collections.abc import Iterable, Iterator

import crc32c

from fencepost.broker.cluster.engine import Row, RowKind
from fencepost.broker.cluster.objects.object_store import place_name
from fencepost.broker.log.config import NEVER_MS, LogConfig
from fencepost.broker.log.storage.segments import Segments
from fencepost.broker.log.storage.store import Bytes, CorruptLogFile
from fencepost.protocol.batch_header import (
    BatchHeader,
    CorruptBatch,
    assign_offset,
    crc_fits,
    iter_headers,
    read_header,
)

TAIL = LogConfig(segment_bytes=16 << 20, segment_ms=NEVER_MS)
"""How the tail is cut into segments: the oldest ones are dropped when the scratch directory is full."""

Stamped = list[tuple[int, int, BatchHeader]]
"""The position, the base offset and the header of each batch. The offset and epoch in the header are the old ones."""


def checksum_of(parts: Iterable[Bytes]) -> int:
    """The checksum of a row whose bytes are these parts, one after the other."""
    found = 0
    for part in parts:
        found = crc32c.crc32c(part, found)
    return found


def stamp(row: Row, data: bytearray | memoryview, place: str) -> Stamped:
    """Check all batches of a row, and set their offsets and leader epoch in place.

    The batches of a segment have these already. Raises CorruptLogFile if `data` is not the row's batches: a CRC-32C, of
    a batch or of the row, is wrong, or the bytes, the batches or the offsets are not as many as the row names.
    """
    start = row.placement.position
    if len(data) != row.placement.size_bytes:
        raise CorruptLogFile(place, start, f"{len(data)} bytes, but the row has {row.placement.size_bytes}")
    checksum = None if row.checksum is None else checksum_of([data])  # before the offsets are set
    found: Stamped = []
    offset, end = row.base, 0
    try:
        with memoryview(data) as view:
            for position, header in iter_headers(data):
                if not crc_fits(view, position, header):
                    raise CorruptLogFile(place, start + position, "the batch's CRC-32C does not match its bytes")
                if row.kind is RowKind.RUN:
                    assign_offset(view, position, offset, row.leader_epoch)
                elif header.base_offset < offset:
                    why = f"the batch begins at offset {header.base_offset}, but the one before it ends at {offset}"
                    raise CorruptLogFile(place, start + position, why)
                else:
                    offset = header.base_offset  # compaction removed batches before it
                found.append((position, offset, header))
                offset += header.last_offset_delta + 1
                end = position + header.size_bytes
    except CorruptBatch as error:
        raise CorruptLogFile(place, start, str(error)) from error
    if end != len(data):
        raise CorruptLogFile(place, start + end, "the last batch is not whole")
    if len(found) != row.batches:
        raise CorruptLogFile(place, start, f"{len(found)} batches, but the row has {row.batches}")
    if offset > row.end or (row.kind is RowKind.RUN and offset != row.end):
        raise CorruptLogFile(place, start, f"the batches end at offset {offset}, but the row ends at {row.end}")
    if checksum != row.checksum:
        raise CorruptLogFile(
            place, start, f"the bytes have CRC-32C {checksum}, but the row was written with {row.checksum}"
        )
    return found


def keep(tail: Segments, batch: bytearray, header: BatchHeader, offset: int | None = None) -> None:
    """Append a durable batch to a tail at `offset`, or at that of its header: compaction may have removed batches
    before it.
    """
    if tail.must_roll(len(batch), header, header.max_timestamp, TAIL):
        tail.roll(header.max_timestamp)
    at = header.base_offset if offset is None else offset
    tail.skip_to(at)
    conflict = tail.append(at, batch, header, TAIL)
    assert conflict is None, conflict


def stamped(row: Row, data: Bytes) -> Iterator[tuple[bytearray, BatchHeader]]:
    """The batches of a row as they are in the log, each with its header. Raises CorruptLogFile."""
    whole = bytearray(data)
    for position, _, header in stamp(row, whole, place_name(row.placement.object_id)):
        batch = whole[position : position + header.size_bytes]
        yield batch, read_header(batch)
