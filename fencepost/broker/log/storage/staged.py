"""A large batch on its way into a file: a thread writes it behind all that counts, before it counts itself."""

import threading

from fencepost.broker.log.storage.disk import Disk
from fencepost.broker.log.storage.store import Bytes, Descriptor

PIECE_BYTES = 128 << 10
"""A write takes pages from the kernel in pieces as large as itself, and large ones can cost ten times as much: decision
44."""


class Staged:
    """The bytes of one batch that stand in a file, or soon will, where the next batch begins.

    `data` is the batch, but for its first bytes, which are going to be `head` when it is appended; `mark` comes behind.
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
        """Write it all, the mark first; to be called from a thread. Where the disk refuses, the append will, too."""
        try:
            with memoryview(self._data) as view, memoryview(self._head) as head, memoryview(self._mark) as mark:
                self._complete = (
                    self._put(mark, len(view)) and self._put(head, 0) and self._put(view[len(head) :], len(head))
                )
        except OSError:
            self._complete = False

    def is_whole(self, position: int, data: Bytes) -> bool:
        """Whether all of `data`, this very object as it is now, stands at `position`."""
        return (
            self._complete
            and self._data is data
            and self._position == position
            and data[: len(self._head)] == self._head
        )

    def withdraw(self) -> None:
        """Write nothing more: when this returns, the room behind the last batch is the caller's. It waits for the one
        piece that may be under way.
        """
        self._withdrawn = True  # first, or the thread might take the lock again and again before us
        with self._writing:
            pass

    def _put(self, view: memoryview, at: int) -> bool:
        """Write `view` from byte `at` of the batch's room on; False where not all of it went in."""
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
