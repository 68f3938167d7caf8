"""Bringing many bytes to the disk a little at a time, so that what others want of it meanwhile does not wait long."""

import ctypes
import errno
import os
import sys
import threading
from collections.abc import Callable

Range = Callable[[int, int, int, int], int]
"""Linux's sync_file_range: descriptor, position, length and flags; 0, or -1 with the error in ctypes' errno."""

STEP_BYTES = 1 << 20
"""At most two steps are on their way to the disk at a time."""
_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4
_UNKNOWN_HERE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.ESPIPE)


class Writeback:
    """Writes dirty pages for any number of threads, whose files take turns; on Linux, elsewhere nothing happens.

    A flush of 64 MiB at once fills the disk's queue for a quarter of a second. Whatever the file system has to read
    before it can go on (where is free room?) waits behind that, with the file's map of blocks locked; and so does the
    next write into the page cache of that file, which is the event loop's.
    """

    def __init__(self, function: Range | None = None) -> None:
        self._function = function or _sync_file_range()
        self._turn = threading.Lock()

    @property
    def is_known(self) -> bool:
        """Whether the system can do this, as far as is known."""
        return self._function is not None

    def __call__(self, fd: int, start: int, stop: int) -> None:
        """Have the bytes from `start` to `stop` written, or on their way; that makes nothing durable. Raises OSError,
        after which they may be lost.
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
            self._function = None  # a sandbox, or a file system of another kind: the flush does it all


def _sync_file_range() -> Range | None:
    """The system's function of that name, which Python does not offer; None where there is none."""
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
