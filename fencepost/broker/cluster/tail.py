"""The local copies of a log's newest records: segments in the scratch directory, as with files."""

from collections.abc import Iterator

from fencepost.broker.cluster.engine import Row
from fencepost.broker.cluster.objects import place_name
from fencepost.broker.cluster.stamping import stamp
from fencepost.broker.log.config import NEVER_MS, LogConfig
from fencepost.broker.log.storage.segments import Segments
from fencepost.broker.log.storage.store import Bytes
from fencepost.protocol.batch_header import BatchHeader, read_header

TAIL = LogConfig(segment_bytes=16 << 20, segment_ms=NEVER_MS)
"""How the tail is cut into segments: the oldest ones are dropped when the scratch directory is full."""


def keep(tail: Segments, batch: bytearray, header: BatchHeader, offset: int | None = None) -> None:
    """Append a durable batch to a tail at `offset`, or at that of its header: compaction may have removed batches
    before it.
    """
    if tail.must_roll(len(batch), header, header.max_timestamp, TAIL):
        tail.roll(header.max_timestamp)
    at = tail.active.next_offset = header.base_offset if offset is None else offset
    conflict = tail.append(at, batch, header, TAIL)
    assert conflict is None, conflict


def stamped(row: Row, data: Bytes) -> Iterator[tuple[bytearray, BatchHeader]]:
    """The batches of a row as they are in the log, each with its header. Raises CorruptLogFile."""
    whole = bytearray(data)
    for position, _, header in stamp(row, whole, place_name(row.placement.object_id)):
        batch = whole[position : position + header.size_bytes]
        yield batch, read_header(batch)
