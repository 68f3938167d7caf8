"""Writes many dirty bytes to the disk in small steps, so that other disk requests do not wait long."""

import ctypes
import errno
import os
import sys
import threading
from collections.abc import Callable

Range = Callable[[int, int, int, int], int]
"""Linux's sync_file_range: descriptor, position, length and flags; 0, or -1 with the error in ctypes' errno."""

STEP_BYTES = 1 << 20
"""The size of one step. At most two steps are in flight at a time."""
_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4
_UNKNOWN_HERE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.ESPIPE)


class Writeback:
    """Writes dirty pages of one file at a time, for any number of threads; does nothing on systems other than Linux.

    One flush of 64 MiB fills the disk's queue for a quarter of a second. Reads of file system metadata wait behind it
    while the file's block map is locked. The event loop's next write to that file then waits, too.
    """

    def __init__(self, function: Range | None = None) -> None:
        self._function = function or _sync_file_range()
        self._turn = threading.Lock()

    @property
    def is_known(self) -> bool:
        return self._function is not None

    def __call__(self, fd: int, start: int, stop: int) -> None:
        """Write the bytes from `start` to `stop`, or begin to; that makes nothing durable. Raises OSError: then the
        bytes may be lost.
        """
        with self._turn:
            before: tuple[int, int] | None = None
            for position in range(start, stop, STEP_BYTES):
                if self._function is None:
                    return
                length = min(STEP_BYTES, stop - position)
                self._ask(self._function, fd, position, length, _WRITE)
                if before is not None:
                    self._ask(self._function, fd, *before, _WAIT_BEFORE | _WRITE | _WAIT_AFTER)
                before = position, length

    def _ask(self, function: Range, fd: int, position: int, length: int, flags: int) -> None:
        if function(fd, position, length, flags) != 0:
            code = ctypes.get_errno()
            if code not in _UNKNOWN_HERE:
                raise OSError(code, os.strerror(code))
            self._function = None  # not supported by this sandbox or file system: the flush writes everything


def _sync_file_range() -> Range | None:
    """Linux's `sync_file_range`, which Python does not offer; None if the system lacks it."""
    if sys.platform != "linux":
        return None
    try:
        function = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    function.restype = ctypes.c_int
    found: Range = function
    return found
