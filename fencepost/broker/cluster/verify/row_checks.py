"""What a row says about its batches and its neighbours, compared with what they are. Pure; `verify` and the audit."""

from collections.abc import Iterator, Sequence

from fencepost.broker.cluster.commit.rounds import producer_ids
from fencepost.broker.cluster.database.table_facts import ObjectUse
from fencepost.broker.cluster.engine import Head, Row, RowKind
from fencepost.protocol.batch_header import HEADER_SIZE, BatchHeader, CorruptBatch, read_header

BASE_OFFSET_END, LEADER_EPOCH_START, LEADER_EPOCH_END = 8, 12, 16
"""A row's headers, and its bytes, may carry other offsets and epochs than the row."""
_LIVE = 1
_STATES = {0: "claimed, and not live", 2: "marked for deletion"}


def row_differences(
    row: Row, batches: Sequence[tuple[int, BatchHeader]], content: bytearray, folded_to: int
) -> list[str]:
    """How a row differs from its batches; `batches` are their positions in `content`, and their headers.

    `folded_to` is the offset of the snapshot of the log's producers: runs from there on need headers.
    """
    headers = [header for _, header in batches]
    found = []
    if len(headers) != row.batches:
        found.append(f"the row has {row.batches} batches, but {len(headers)} are there")
    for name, named, wanted in (
        ("producer ids", row.producer_ids, producer_ids(headers)),
        ("largest timestamp", row.max_timestamp_ms, max((one.max_timestamp for one in headers), default=-1)),
    ):
        if named != wanted:
            found.append(f"the row has {name} {named}, its batches {wanted}")
    if row.heads is not None:
        expected = b"".join(
            _without_offset(content, position, header.size_bytes if header.is_control else HEADER_SIZE)
            for position, header in batches
        )
        if _all_without_offset(row.heads) != expected:
            found.append("the headers in the row are not those of its batches")
    elif row.kind is RowKind.RUN and row.base >= folded_to:
        found.append("the row has no headers, but no snapshot of the producers stands for it")
    return found


def before_row(head: Head, end: int | None, row: Row) -> tuple[int, str] | None:
    """What is wrong between a row and the end of the one before it, and at which offset; None if nothing is.

    `end` is None for the first row of a log.
    """
    if end is None:
        if row.base <= head.start:
            return None
        return head.start, f"its first row begins at offset {row.base}, but the log at {head.start}"
    return None if row.base == end else (end, f"the row at offset {row.base} follows one that ends at {end}")


def bounds_differences(head: Head, end: int | None) -> Iterator[tuple[int, str]]:
    """How the bounds of a log differ from its rows, which end at `end` (None: it has none): offsets and words."""
    end = head.start if end is None else end
    if end != head.next:
        yield end, f"its rows end at offset {end}, but the database gives the next record offset {head.next}"
    if head.start > head.next:
        yield head.start, f"it starts behind its end, at offset {head.start}"


def size_difference(head: Head, size_bytes: int) -> str | None:
    """What is wrong with the size of a log whose rows have `size_bytes` bytes; readers do not notice it."""
    if size_bytes == head.size_bytes:
        return None
    return f"its rows have {size_bytes} bytes, but the database counts {head.size_bytes}"


def use_difference(use: ObjectUse) -> str | None:
    """Why garbage collection may delete an object to which rows refer; None if it does not."""
    if use.state is None:
        return "the database does not know the object, so the next sweep deletes it"
    if use.state != _LIVE:
        return f"the object is {_STATES.get(use.state, f'in state {use.state}')}"
    if use.counted < use.rows:
        return f"{use.rows} rows refer to the object, but the database counts {use.counted}"
    return None


def _without_offset(content: bytes | bytearray, start: int, size: int) -> bytes:
    """A header, or a control batch, without base offset and leader epoch; the CRC-32C covers neither."""
    return bytes(
        content[start + BASE_OFFSET_END : start + LEADER_EPOCH_START] + content[start + LEADER_EPOCH_END : start + size]
    )


def _all_without_offset(heads: bytes) -> bytes:
    parts, position = [], 0
    try:
        while position < len(heads):
            header = read_header(heads, position, whole=False)
            size = header.size_bytes if header.is_control else HEADER_SIZE
            parts.append(_without_offset(heads, position, size))
            position += size
    except CorruptBatch:
        return b""
    return b"".join(parts)
