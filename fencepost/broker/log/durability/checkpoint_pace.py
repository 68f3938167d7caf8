"""When the next checkpoint of a log is due. Checkpoints keep starts after a crash short."""

from fencepost.broker.log.log_store import StoredLog

CHECKPOINT_BYTES = 64 << 20
"""A checkpoint is due after this many bytes; it takes a producer snapshot within the segment, for recovery."""
CHECKPOINT_BATCHES = 200_000
"""A checkpoint is also due after this many batches: for recovery a tiny batch costs as much as a large one."""
CHECKPOINT_BYTES_MIN = 1 << 20
CHECKPOINT_AGE_SECONDS = 15.0
"""After this time since the last checkpoint, the next one is due for `CHECKPOINT_BYTES_MIN` bytes."""
LAZY_BYTES = 256 << 20
LAZY_AGE_SECONDS = 60.0
"""The same for `durability=os`. There a checkpoint causes the only flush, and after a minute the kernel has written
most of the bytes without one."""


class CheckpointPace:
    """Compares the bytes, batches and seconds since the last checkpoint with the bounds."""

    def __init__(self, log: StoredLog, *, lazy: bool) -> None:
        self._log = log
        self._lazy = lazy
        self._bytes = log.written_bytes
        self._batches = log.written_batches
        self._seconds: float | None = None

    def due(self, seconds: float) -> bool:
        """Whether a checkpoint is due at `seconds` of a monotonic clock. True also begins the next interval.

        The first call begins the first interval. With `lazy` (`durability=os`) a closed segment makes a checkpoint due
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
