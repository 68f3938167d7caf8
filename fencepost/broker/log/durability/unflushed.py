"""`os` durability: how much of the logs the kernel may hold before the broker has it written.

Nobody waits for the disk there, so what a log holds may stay in the page cache until the kernel writes it, half a
minute later, or until its topic is deleted. But not without bound: with too much of its memory dirty the kernel stops
whoever writes, and that is the event loop (docs/decisions/0048-what-the-kernel-may-keep.md).
"""

import contextlib
import math
import os
import time
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

from fencepost.broker.log.results import FlushedLog

BYTES_MAX = 1 << 30
MEMORY_SHARE = 24
"""And at most this part of the memory: the kernel begins to write at a tenth of it, and to stop writers at a fifth."""
WRITEBACK_BYTES = 64 << 20
"""So much is written at a time; who is held back waits no longer than that takes."""
LOOK_BYTES = 1 << 20
"""A log is counted anew after so many bytes, or after fewer, so that of all together no more than the bound is not."""
LOGS_MIN = 16
"""So many there are taken to be in any case."""
_EXPIRY = ("/proc/sys/vm/dirty_expire_centisecs", "/proc/sys/vm/dirty_writeback_centisecs")
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_UNKNOWN_MEMORY_BYTES = 4 << 30
_SWEEP_MIN = 64
_MARGIN_SECONDS = 2.0


def bytes_max() -> int:
    """The bound where no setting names one: a GiB, less on a small machine or in a small container."""
    sizes = [_UNKNOWN_MEMORY_BYTES]
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for place in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max", or another kind of system
            sizes.append(int(Path(place).read_text()))
    return max(LOOK_BYTES, min(BYTES_MAX, min(sizes) // MEMORY_SHARE))


def kept_seconds() -> float:
    """How long the system keeps what nobody flushes: how old it lets pages become, and how often it looks."""
    try:
        return sum(int(Path(place).read_text()) for place in _EXPIRY) / 100 + _MARGIN_SECONDS
    except (OSError, ValueError):
        return math.inf


class Unflushed:
    """Counts what was written and is not known to be on the disk, a log at a time."""

    def __init__(self, max_bytes: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.max_bytes = max_bytes
        self._monotonic = monotonic
        self._kept_seconds = kept_seconds()
        self.total_bytes = 0
        """As of the last look at each log."""
        self._bytes: dict[FlushedLog, int] = {}
        self._looks: dict[FlushedLog, float] = {}
        """When each was counted last, the oldest first."""
        self._sweep_at = _SWEEP_MIN

    def look(self, log: FlushedLog) -> None:
        """Count the log as it is now, and name the moment of the next look."""
        self._count(log, log.unflushed_bytes if log.writable else 0)
        if self.is_too_much:
            self._drop_old()
        if not log.offline:
            look_bytes = min(LOOK_BYTES, self.max_bytes // max(LOGS_MIN, len(self._bytes)))
            log.flush_at_bytes = log.segments.written_bytes + look_bytes
        if len(self._bytes) >= self._sweep_at:  # topics come and go, and their bytes may never be too much
            self._forget_gone()
            self._sweep_at = max(_SWEEP_MIN, 2 * len(self._bytes))

    @property
    def is_too_much(self) -> bool:
        """Whether some of it should be written."""
        return self.total_bytes > self.max_bytes

    @property
    def must_wait(self) -> bool:
        """Whether writers are held back until some of it is."""
        return self.total_bytes > self.max_bytes + min(WRITEBACK_BYTES, self.max_bytes)

    def largest_first(self) -> list[FlushedLog]:
        """The logs that have something to write; those that are gone are not counted any more."""
        self._forget_gone()
        return sorted(self._bytes, key=self._bytes.__getitem__, reverse=True)

    def _forget_gone(self) -> None:
        for log in [log for log in self._bytes if not log.writable]:
            self._count(log, 0)

    def _drop_old(self) -> None:
        """Count no log any more that has been quiet for so long that the system has written it."""
        before = self._monotonic() - self._kept_seconds
        for log in list(takewhile(lambda log: self._looks[log] < before, self._looks)):
            self._count(log, 0)

    def _count(self, log: FlushedLog, size_bytes: int) -> None:
        self.total_bytes += size_bytes - self._bytes.pop(log, 0)
        self._looks.pop(log, None)
        if size_bytes:
            self._bytes[log] = size_bytes
            self._looks[log] = self._monotonic()
