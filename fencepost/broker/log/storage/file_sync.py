"""One flush of one file, or of a part of it."""

from dataclasses import dataclass

from fencepost.broker.log.storage.disk import Disk
from fencepost.broker.log.storage.store import Descriptor, FlushFailed

LARGE_BYTES = 4 << 20
"""More than that does not go to the disk at once (docs/decisions/0044-writes-in-pieces.md)."""


@dataclass(slots=True, eq=False)
class _FilePart:
    """From where to where a file is meant, and the descriptor it needs."""

    disk: Disk
    descriptor: Descriptor
    place: str
    start: int
    stop: int


class FileSync(_FilePart):
    """One fdatasync, with the descriptor it needs and what was appended since the last one. Raises FlushFailed.

    Nothing is left that tells the next process of a failure: whoever is killed that moment could leave nothing, so a
    start after a crash believes no page of a log's tail in any case (`LogDirectory`).
    """

    __slots__ = ()

    def sync(self) -> None:
        call = "fdatasync"
        try:
            if self.stop - self.start > LARGE_BYTES:
                call = "sync_file_range"
                self.disk.write_back(self.descriptor.fd, self.start, self.stop)
                call = "fdatasync"
            self.disk.fdatasync(self.descriptor.fd)
        except OSError as error:
            raise FlushFailed(error.errno, f"{call}: {error.strerror}", self.place) from error


class FileWriteback(_FilePart):
    """Brings a part of a file to the disk, so that the kernel holds less; nothing is durable then. Raises FlushFailed.

    A system that can write no part of a file leaves it to the next flush.
    """

    __slots__ = ()

    def sync(self) -> None:
        try:
            self.disk.write_back(self.descriptor.fd, self.start, self.stop)
        except OSError as error:
            raise FlushFailed(error.errno, f"sync_file_range: {error.strerror}", self.place) from error
