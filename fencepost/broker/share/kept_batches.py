"""The record batches that were read last: members that take one record at a time ask for each of them many times.

Batches of a log do not change, but for compaction.

What it buys is the row "share group, one by one, 32 consumers" of the bench.
"""

from typing import NamedTuple

from fencepost.broker.share.led import LedPartition
from fencepost.broker.share.reading import SharedRead, read_for
from fencepost.broker.share.values import Fetched
from fencepost.protocol.batch_header import BatchHeader
from fencepost.protocol.errors import NO_ERROR
from fencepost.protocol.topics import IsolationLevel

BYTES_MAX = 8 << 20
"""Of all batches that are kept."""
BATCH_BYTES_MAX = 64 << 10


class _Kept(NamedTuple):
    header: BatchHeader
    piece: memoryview
    isolation: IsolationLevel
    """Under which it was read, and not aborted: that never changes again."""


class KeptBatches:
    """One record batch of each share partition that was read last; the oldest go first."""

    def __init__(self) -> None:
        self._kept: dict[LedPartition, _Kept] = {}
        self._bytes = 0

    def size_bytes(self, led: LedPartition, offset: int, isolation: IsolationLevel) -> int:
        """The size of the batch that has an offset; 0 if it is not kept."""
        kept = self._with(led, offset, isolation)
        return 0 if kept is None else kept.header.size_bytes

    def read(
        self,
        led: LedPartition,
        offset: int,
        max_bytes: int,
        max_records: int,
        isolation: IsolationLevel,
        *,
        at_least_one: bool,
    ) -> SharedRead:
        """As `read_for`; the log is not read if the batch that is kept is all that is wanted."""
        kept = self._with(led, offset, isolation)
        if kept is not None and kept.header.next_offset - offset >= max_records:
            header = kept.header
            if at_least_one or header.size_bytes <= max_bytes:
                fetched = Fetched(offset, [(header.base_offset, header.last_offset)], [])
                return SharedRead(NO_ERROR, fetched, [(header, kept.piece)])
        read = read_for(led.log, offset, max_bytes, max_records, isolation, at_least_one=at_least_one)
        if len(read.pieces) == 1 and not read.fetched.aborted and not led.log.config.compacted:
            self._keep(led, _Kept(*read.pieces[0], isolation))
        return read

    def forget(self, led: LedPartition) -> None:
        """The share partition is used no more."""
        kept = self._kept.pop(led, None)
        if kept is not None:
            self._bytes -= kept.header.size_bytes

    def _with(self, led: LedPartition, offset: int, isolation: IsolationLevel) -> _Kept | None:
        kept = self._kept.get(led)
        if kept is None or kept.isolation is not isolation:
            return None
        return kept if kept.header.base_offset <= offset <= kept.header.last_offset else None

    def _keep(self, led: LedPartition, kept: _Kept) -> None:
        self.forget(led)
        size = kept.header.size_bytes
        if size > BATCH_BYTES_MAX:
            return
        self._kept[led] = kept
        self._bytes += size
        while self._bytes > BYTES_MAX:
            self.forget(next(iter(self._kept)))
