"""One flush of one file, or of a part of it."""

from fencepost.broker.log.storage.disk import Disk
from fencepost.broker.log.storage.store import Descriptor, FlushFailed

LARGE_BYTES = 4 << 20
"""More than that does not go to the disk at once (docs/decisions/0044-writes-in-pieces.md)."""


class FileSync:
    """One fdatasync, with the descriptor it needs and what was appended since the last one. Raises FlushFailed.

    Nothing is left that tells the next process of a failure: whoever is killed that moment could leave nothing, so a
    start after a crash believes no page of a log's tail in any case (`LogDirectory`).
    """

    def __init__(self, disk: Disk, descriptor: Descriptor, place: str, start: int, stop: int) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._place = place
        self._start = start
        self._stop = stop

    def sync(self) -> None:
        call = "fdatasync"
        try:
            if self._stop - self._start > LARGE_BYTES:
                call = "sync_file_range"
                self._disk.write_back(self._descriptor.fd, self._start, self._stop)
                call = "fdatasync"
            self._disk.fdatasync(self._descriptor.fd)
        except OSError as error:
            raise FlushFailed(error.errno, f"{call}: {error.strerror}", self._place) from error


class FileRelief:
    """Brings a part of a file to the disk, so that the kernel holds less; nothing is durable then. Raises FlushFailed.

    A system that can write no part of a file leaves it to the next flush.
    """

    def __init__(self, disk: Disk, descriptor: Descriptor, place: str, start: int, stop: int) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._place = place
        self._start = start
        self._stop = stop

    def sync(self) -> None:
        try:
            self._disk.write_back(self._descriptor.fd, self._start, self._stop)
        except OSError as error:
            raise FlushFailed(error.errno, f"sync_file_range: {error.strerror}", self._place) from error
