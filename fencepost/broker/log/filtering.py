"""Reads that leave out aborted batches (row I4): readers of long aborted stretches receive little more than markers.

Nothing is decompressed or copied: runs of batches that stay are sent from the file, as without the filter. The markers
stay, and so does the list of aborted transactions, so a client's own filter finds nothing to do and every client's
position moves on. Gaps between batches are what compaction leaves, too.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator

from fencepost.broker.log.log_store import Extent, StoredLog
from fencepost.broker.log.storage.store import FileRegion, Piece
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.batch_header import HEADER_SIZE, BatchHeader, iter_headers, read_header

BATCHES_MAX = 1000
"""How many batches one fetch looks at, in all its partitions: the event loop does it, for some milliseconds."""
COPIED_BYTES_MAX = 16 << 10
"""Shorter runs between two aborted batches are read at once: a call of sendfile for each would take longer."""
_WINDOW_BYTES = 16 << 10


class FilterBudget:
    """How many batches a fetch may still look at. Once there are none left, it is not filtered any more."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = BATCHES_MAX


def read_without_aborted(
    segments: StoredLog, offset: int, upper_offset: int, max_bytes: int, at_least_one: bool, budget: FilterBudget
) -> tuple[Extent, list[AbortedTransaction]]:
    """As `StoredLog.read`, without the batches of aborted transactions; and the transactions that overlap what it read.

    It reads on past aborted batches, as far as `budget` allows. If no batch stays, the last aborted one is returned:
    readers leave it out themselves, and go on after it. Raises as `StoredLog.read`.
    """
    parts: list[Piece] = []
    found: dict[AbortedTransaction, None] = {}
    size_bytes = 0
    last: Piece | None = None
    while True:
        extent = segments.read(offset, upper_offset, max(0, max_bytes - size_bytes), at_least_one and not parts)
        if extent.missing is not None and last is None and not parts:
            return extent, []
        if extent.missing is not None or not extent.size_bytes:
            break
        aborted = segments.aborted_between(offset, extent.end_offset)
        offset = extent.end_offset
        if not aborted:
            parts += extent.parts
            size_bytes += extent.size_bytes
            break
        found.update(dict.fromkeys(aborted))
        spans = _spans(aborted)
        for piece in extent.parts:
            seen, left_out = _sift(piece, spans, parts)
            budget.left -= seen
            last = left_out or last
        size_bytes = sum(map(len, parts))
        if offset >= upper_offset or size_bytes >= max_bytes or budget.left <= 0:
            break
    if not parts and last is not None:
        parts, size_bytes = [last], len(last)
    return Extent(parts, size_bytes, offset), sorted(found, key=lambda entry: entry.first_offset)


_Spans = dict[int, list[tuple[int, int]]]


def _spans(aborted: Iterable[AbortedTransaction]) -> _Spans:
    """By producer, the first offset and the marker's of each of its aborted transactions."""
    spans: _Spans = defaultdict(list)
    for entry in aborted:
        spans[entry.producer_id].append((entry.first_offset, entry.last_offset))
    return spans


def _is_aborted(header: BatchHeader, spans: _Spans) -> bool:
    if header.producer_id not in spans or not header.is_transactional or header.is_control:
        return False
    return any(first <= header.base_offset <= last for first, last in spans[header.producer_id])


def _sift(piece: Piece, spans: _Spans, kept: list[Piece]) -> tuple[int, Piece | None]:
    """Append what stays of a piece to `kept`. Returns its number of batches, and the last one that was left out."""
    batches, run_start = 0, 0
    left_out: tuple[int, int] | None = None
    for start, header in _headers(piece):
        batches += 1
        if _is_aborted(header, spans):
            if start > run_start:
                kept.append(_part(piece, run_start, start))
            run_start = start + header.size_bytes
            left_out = start, run_start
    if len(piece) > run_start:
        kept.append(_part(piece, run_start, len(piece)))
    return batches, None if left_out is None else _part(piece, *left_out)


def _part(piece: Piece, start: int, stop: int) -> Piece:
    if isinstance(piece, bytes):
        return piece[start:stop]
    if start == 0 and stop == len(piece):
        return piece
    if stop - start > COPIED_BYTES_MAX:
        return piece.part(start, stop)
    return _read(piece, start, stop)


def _headers(piece: Piece) -> Iterator[tuple[int, BatchHeader]]:
    """The position and the header of every batch."""
    if isinstance(piece, bytes):
        yield from iter_headers(piece)
        return
    position = 0
    while position < len(piece):
        window = _read(piece, position, min(len(piece), position + _WINDOW_BYTES))
        at = 0
        while not at or at + HEADER_SIZE <= len(window):
            header = read_header(window, at, whole=False)
            yield position + at, header
            at += header.size_bytes
        position += at


def _read(region: FileRegion, start: int, stop: int) -> bytes:
    """Raises OSError if the file is shorter."""
    parts, position = [], region.offset + start
    end = region.offset + stop
    while position < end:
        part = os.pread(region.fd, end - position, position)
        if not part:
            raise OSError(f"ends at byte {position}, where {end - position} more were expected")
        parts.append(part)
        position += len(part)
    return b"".join(parts)
