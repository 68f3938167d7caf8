"""`durability=os`: how many dirty bytes of the logs the kernel may hold before the broker writes some back.

No request waits for the disk there, so batches may stay in the page cache until the kernel writes them, half a minute
later, or until their topic is deleted. The bytes must be bounded: with too many dirty pages the kernel blocks every
writer, and here that is the event loop (docs/decisions/0048-bound-dirty-pages.md).
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
"""At most 1/24 of the memory: the kernel begins to write at a tenth of it, and blocks writers at a fifth."""
WRITEBACK_BYTES = 64 << 20
"""How many bytes one writeback writes; a throttled writer waits no longer than that takes."""
LOOK_BYTES = 1 << 20
"""A log is counted again after at most this many bytes; after fewer if there are many logs, so that the uncounted bytes
of all logs stay within the bound."""
LOGS_MIN = 16
"""The least number of logs that this share assumes."""
_EXPIRY = ("/proc/sys/vm/dirty_expire_centisecs", "/proc/sys/vm/dirty_writeback_centisecs")
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_UNKNOWN_MEMORY_BYTES = 4 << 30
_SWEEP_MIN = 64
_MARGIN_SECONDS = 2.0


def bytes_max() -> int:
    """The default bound: 1 GiB, or less on a small machine or in a small container."""
    sizes = [_UNKNOWN_MEMORY_BYTES]
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for place in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max", or another kind of system
            sizes.append(int(Path(place).read_text()))
    return max(LOOK_BYTES, min(BYTES_MAX, min(sizes) // MEMORY_SHARE))


def kept_seconds() -> float:
    """How long the kernel keeps dirty pages without a flush: their largest age plus the interval of its checks."""
    try:
        return sum(int(Path(place).read_text()) for place in _EXPIRY) / 100 + _MARGIN_SECONDS
    except (OSError, ValueError):
        return math.inf


class Unflushed:
    """Counts the bytes of each log that were written and are not known to be on the disk."""

    def __init__(self, max_bytes: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.max_bytes = max_bytes
        self._monotonic = monotonic
        self._kept_seconds = kept_seconds()
        self.total_bytes = 0
        """The sum of the counts, each as of the log's last `look`."""
        self._bytes: dict[FlushedLog, int] = {}
        self._looks: dict[FlushedLog, float] = {}
        """When each log was counted last, the oldest first."""
        self._sweep_at = _SWEEP_MIN

    def look(self, log: FlushedLog) -> None:
        """Count the log now, and set when it is counted next (`flush_at_bytes`)."""
        self._count(log, log.unflushed_bytes if log.writable else 0)
        if self.is_too_much:
            self._drop_old()
        if not log.offline:
            look_bytes = min(LOOK_BYTES, self.max_bytes // max(LOGS_MIN, len(self._bytes)))
            log.flush_at_bytes = log.segments.written_bytes + look_bytes
        if len(self._bytes) >= self._sweep_at:  # drops deleted logs, even if the total never exceeds the bound
            self._forget_gone()
            self._sweep_at = max(_SWEEP_MIN, 2 * len(self._bytes))

    @property
    def is_too_much(self) -> bool:
        return self.total_bytes > self.max_bytes

    @property
    def must_wait(self) -> bool:
        return self.total_bytes > self.max_bytes + min(WRITEBACK_BYTES, self.max_bytes)

    def largest_first(self) -> list[FlushedLog]:
        """The logs with dirty bytes, the largest count first; also drops logs that are no longer writable."""
        self._forget_gone()
        return sorted(self._bytes, key=self._bytes.__getitem__, reverse=True)

    def _forget_gone(self) -> None:
        for log in [log for log in self._bytes if not log.writable]:
            self._count(log, 0)

    def _drop_old(self) -> None:
        """Drop the logs whose last append is old enough for the kernel to have written their pages."""
        before = self._monotonic() - self._kept_seconds
        for log in list(takewhile(lambda log: self._looks[log] < before, self._looks)):
            self._count(log, 0)

    def _count(self, log: FlushedLog, size_bytes: int) -> None:
        self.total_bytes += size_bytes - self._bytes.pop(log, 0)
        self._looks.pop(log, None)
        if size_bytes:
            self._bytes[log] = size_bytes
            self._looks[log] = self._monotonic()
