"""The sparse indexes of a segment, in Kafka's bytes: offset -> position, timestamp -> offset.

Entries wait in memory and are written a page at a time, so that an append needs no system call for its index entry.
After a crash the scan of the tail rebuilds the entries that were not written.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

import crc32c

from fencepost.broker.log.storage.store import StoredFile

OFFSET_ENTRY = Struct(">ii")
"""Last offset of a batch relative to the segment's base, and the batch's position in bytes."""
TIME_ENTRY = Struct(">qi")
"""The largest timestamp so far in ms, and the last offset (relative) of the batch that has it."""

_FLUSH_BYTES = 4096
_CHECK_BYTES = 1 << 20

logger = logging.getLogger(__name__)


class FileSeal(NamedTuple):
    """The size of a file and the CRC-32C of its bytes."""

    size_bytes: int
    crc: int


class IndexFile:
    """An append-only file of entries of equal size, read by their number."""

    def __init__(self, file: StoredFile, entry: Struct) -> None:
        self.file = file
        self._entry = entry
        self._pending = bytearray()
        self._page_bytes = _FLUSH_BYTES // entry.size * entry.size
        self._page, self._page_at = b"", 0  # the page read last: a search ends within one page
        self._filed_bytes = file.size_bytes - file.size_bytes % entry.size
        self._crc: int | None = None if self._filed_bytes else 0
        self._found = 0
        self.prove: Callable[[], None] | None = None
        """Called before the first search: verifies a file from an earlier run, or rebuilds it."""

    def __len__(self) -> int:
        return (self._filed_bytes + len(self._pending)) // self._entry.size

    def __getitem__(self, index: int) -> tuple[int, ...]:
        at = index * self._entry.size
        if at >= self._filed_bytes:
            return self._entry.unpack_from(self._pending, at - self._filed_bytes)
        if not 0 <= at - self._page_at < len(self._page):
            self._page_at = at - at % self._page_bytes
            self._page = self.file.read(self._page_at, min(self._page_bytes, self._filed_bytes - self._page_at))
        return self._entry.unpack_from(self._page, at - self._page_at)

    @property
    def size_bytes(self) -> int:
        return self._filed_bytes + len(self._pending)

    @property
    def pending_bytes(self) -> int:
        return len(self._pending)

    def add(self, *values: int) -> None:
        """Append an entry. Never fails: on a full disk the entry stays in memory."""
        self._pending += self._entry.pack(*values)
        if len(self._pending) >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> bool:
        """Write the waiting entries to the file. Returns False if the disk fails; then they stay in memory."""
        if self._pending:
            try:
                self.file.write(self._filed_bytes, self._pending)
            except OSError as error:
                logger.warning("index entries of %s stay in memory: %s", self.file.place, error.strerror)
                return False
            if self._crc is not None:
                self._crc = int(crc32c.crc32c(self._pending, self._crc))
            self._filed_bytes += len(self._pending)
            self._pending.clear()
        return True

    def count_until(self, value: int, key: Callable[[tuple[int, ...]], int]) -> int:
        """The number of entries with a `key` of at most `value`; keys rise along the file. Raises OSError.

        The search begins where the last one ended, because a reader mostly continues a little further on.
        """
        count, low = len(self), self._found
        if low > count or (low and key(self[low - 1]) > value):
            low, high = 0, min(low, count)
        else:
            high, step = low, 1
            while high < count and key(self[high]) <= value:
                low, high, step = high + 1, high + step, 2 * step
        self._found = found = bisect_right(self, value, low, min(high, count), key=key)
        return found

    def seal(self) -> "FileSeal":
        """The size and checksum of the file's entries; the checksum is updated with each write."""
        if self._crc is None:
            self._crc = self._checksum(self._filed_bytes)
        return FileSeal(self._filed_bytes, self._crc)

    def begins_as(self, seal: "FileSeal") -> bool:
        """Whether the file begins with the sealed bytes, unchanged. Reads the file; raises OSError."""
        if seal.size_bytes > self._filed_bytes or seal.size_bytes % self._entry.size:
            return False
        crc = self._checksum(seal.size_bytes)
        if seal.size_bytes == self._filed_bytes:
            self._crc = crc
        return crc == seal.crc

    def is_as(self, seal: "FileSeal") -> bool:
        """Whether the file holds exactly the sealed bytes. Reads the file; raises OSError."""
        return self.file.size_bytes == seal.size_bytes and self.begins_as(seal)

    def drop_unsealed(self, seal: "FileSeal") -> None:
        """Drop the entries after `seal`: a power cut may have replaced them by zeros. Raises OSError."""
        self.truncate(seal.size_bytes // self._entry.size)

    def _checksum(self, size_bytes: int) -> int:
        crc = 0
        for at in range(0, size_bytes, _CHECK_BYTES):
            crc = int(crc32c.crc32c(self.file.read(at, min(_CHECK_BYTES, size_bytes - at)), crc))
        return crc

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries. Raises OSError."""
        size_bytes = count * self._entry.size
        if size_bytes < self._filed_bytes or self.file.size_bytes != self._filed_bytes:
            self._filed_bytes = min(size_bytes, self._filed_bytes)
            self._crc = None if self._filed_bytes else 0
            self._page = b""
            self.file.truncate(self._filed_bytes)
        del self._pending[max(0, size_bytes - self._filed_bytes) :]

    def entries(self, start: int = 0) -> Iterator[tuple[int, ...]]:
        """The entries from index `start` on, read a page at a time."""
        at = start * self._entry.size
        while at < self._filed_bytes:
            page = self.file.read(at, min(self._page_bytes, self._filed_bytes - at))
            yield from self._entry.iter_unpack(page)
            at += len(page)
        yield from self._entry.iter_unpack(bytes(self._pending[at - self._filed_bytes :]))


class OffsetIndex(IndexFile):
    """`.index`: for one batch every few KiB, its last offset and its position (row L1)."""

    def __init__(self, file: StoredFile) -> None:
        super().__init__(file, OFFSET_ENTRY)

    def position_before(self, relative_offset: int) -> int:
        """The nearest indexed position from which a walk over the batches reaches `relative_offset`."""
        if self.prove is not None:
            self.prove()
        found = self.count_until(relative_offset, _first)
        return self[found - 1][1] if found else 0

    def batch_before(self, position: int) -> int:
        """The position of the last indexed batch that begins at or before `position`; 0 if there is none."""
        if self.prove is not None:
            self.prove()
        found = self.count_until(position, _second)
        return self[found - 1][1] if found else 0

    def truncate_to_position(self, position: int) -> None:
        """Drop the entries of batches that begin at `position` or later. Raises OSError."""
        self.truncate(bisect_right(self, position - 1, key=_second))


class TimeIndex(IndexFile):
    """`.timeindex`: the largest timestamp seen up to a batch, for ListOffsets by time and retention."""

    def __init__(self, file: StoredFile) -> None:
        super().__init__(file, TIME_ENTRY)
        self._last: tuple[int, int] | None = None

    @property
    def last(self) -> tuple[int, int]:
        """The last entry as (timestamp in ms, relative offset); (-1, 0) if there is none.

        Cached in memory: an append reads it after its batch is written, when nothing may fail. The first read may raise
        OSError.
        """
        if self._last is None:
            timestamp_ms, relative_offset = self[len(self) - 1] if len(self) else (-1, 0)
            self._last = timestamp_ms, relative_offset
        return self._last

    def truncate(self, count: int) -> None:
        self._last = None
        super().truncate(count)

    def note(self, timestamp_ms: int, relative_offset: int) -> None:
        """Append an entry if its timestamp is higher than the last one: timestamps in the index rise."""
        last_ms, last_offset = self.last
        if timestamp_ms > last_ms and (relative_offset > last_offset or not len(self)):
            self.add(timestamp_ms, relative_offset)
            self._last = timestamp_ms, relative_offset

    def offset_before(self, timestamp_ms: int) -> int:
        """The relative offset up to which every record is earlier than `timestamp_ms`; 0 if the index has no entry."""
        if self.prove is not None:
            self.prove()
        found = bisect_right(self, timestamp_ms - 1, key=_first)
        return self[found - 1][1] if found else 0

    def latest_before(self, relative_offset: int) -> tuple[int, int]:
        """The last entry for an offset below `relative_offset`; (-1, 0) if there is none."""
        if self.prove is not None:
            self.prove()
        found = bisect_right(self, relative_offset - 1, key=_second)
        if not found:
            return -1, 0
        timestamp_ms, offset = self[found - 1]
        return timestamp_ms, offset

    def truncate_to_offset(self, relative_offset: int) -> None:
        """Drop the entries for offsets at or above `relative_offset`. Raises OSError."""
        self.truncate(bisect_right(self, relative_offset - 1, key=_second))


def _first(entry: tuple[int, ...]) -> int:
    return entry[0]


def _second(entry: tuple[int, ...]) -> int:
    return entry[1]
