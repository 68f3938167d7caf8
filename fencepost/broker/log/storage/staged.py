"""A staged batch: a thread writes a large batch after the file's end, before the append makes it part of the log."""

import threading

from fencepost.broker.log.storage.disk import Disk
from fencepost.broker.log.storage.store import Bytes, Descriptor

PIECE_BYTES = 128 << 10
"""The most bytes of one write. The kernel allocates page cache in pieces as large as the write, and large pieces can
cost ten times as much (decision 44)."""


class Staged:
    """One batch that a thread writes at the position of the next append.

    `data` is the batch, except that its first bytes will be `head` when it is appended; `mark` follows the batch.
    """

    def __init__(
        self, disk: Disk, descriptor: Descriptor, position: int, head: Bytes, data: Bytes, mark: bytes
    ) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._position = position
        self._head = head
        self._data = data
        self._mark = mark
        self._writing = threading.Lock()
        self._withdrawn = False
        self._complete = False

    def sync(self) -> None:
        """Write the mark, then the batch, in a thread. Never raises: after an error the append writes the batch."""
        try:
            with memoryview(self._data) as view, memoryview(self._head) as head, memoryview(self._mark) as mark:
                self._complete = (
                    self._put(mark, len(view)) and self._put(head, 0) and self._put(view[len(head) :], len(head))
                )
        except OSError:
            self._complete = False

    def is_whole(self, position: int, data: Bytes) -> bool:
        """Whether this object `data`, with its current first bytes, is completely written at `position`."""
        return (
            self._complete
            and self._data is data
            and self._position == position
            and data[: len(self._head)] == self._head
        )

    def withdraw(self) -> None:
        """Stop writing. When it returns, the thread writes no more; it waits for at most one piece."""
        self._withdrawn = True  # first: otherwise the thread might take the lock again and again
        with self._writing:
            pass

    def _put(self, view: memoryview, at: int) -> bool:
        """Write `view` from byte `at` of the batch on. Returns False if it was not written completely."""
        start = 0
        while start < len(view):
            with self._writing:
                if self._withdrawn:
                    return False
                piece = view[start : start + PIECE_BYTES]
                count = self._disk.pwrite(self._descriptor.fd, piece, self._position + at + start)
            if not count:
                return False
            start += count
        return True
