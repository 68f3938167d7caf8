"""When the next checkpoint of a log is worth its cost: starts after a crash stay short."""

from typing import Protocol

CHECKPOINT_BYTES = 64 << 20
"""After so many bytes a checkpoint is due, with a producer snapshot within a segment: recovery starts there."""
CHECKPOINT_BATCHES = 200_000
"""After so many batches one is due as well: recovery walks over a tiny one as long as over a large one."""
CHECKPOINT_BYTES_MIN = 1 << 20
CHECKPOINT_AGE_SECONDS = 15.0
"""As many seconds after the last checkpoint the next one is due for fewer bytes, too."""
LAZY_BYTES = 256 << 20
LAZY_AGE_SECONDS = 60.0
"""The same where nobody waits for the disk. A checkpoint is a flush that would not come otherwise, and after a minute
the kernel has written most of it by itself."""


class Written(Protocol):
    """What is asked of a `StoredLog`."""

    @property
    def written_bytes(self) -> int:
        """A count that grows with every append."""

    @property
    def written_batches(self) -> int:
        """Another one."""

    @property
    def has_unsynced_closed(self) -> bool:
        """Whether a segment was closed that no flush has covered."""


class CheckpointPace:
    """Looks at what was written since the last checkpoint, and for how long."""

    def __init__(self, log: Written, *, lazy: bool) -> None:
        self._log = log
        self._lazy = lazy
        self._bytes = log.written_bytes
        self._batches = log.written_batches
        self._seconds: float | None = None

    def due(self, seconds: float) -> bool:
        """Whether a checkpoint is due at `seconds`, on a clock that never goes back; then it is taken as taken now.

        The first look begins the first interval. Where nobody waits for the disk, a segment that was closed is flushed
        soon, as in Kafka.
        """
        log = self._log
        if self._seconds is None:
            self._seconds = seconds
        fresh_bytes = log.written_bytes - self._bytes
        enough = fresh_bytes >= self._enough_bytes(seconds - self._seconds)
        if not enough and log.written_batches - self._batches < CHECKPOINT_BATCHES:
            return False
        self._bytes, self._batches, self._seconds = log.written_bytes, log.written_batches, seconds
        return True

    def _enough_bytes(self, age_seconds: float) -> int:
        if self._lazy and self._log.has_unsynced_closed:
            return 1
        if age_seconds >= (LAZY_AGE_SECONDS if self._lazy else CHECKPOINT_AGE_SECONDS):
            return CHECKPOINT_BYTES_MIN
        return LAZY_BYTES if self._lazy else CHECKPOINT_BYTES
