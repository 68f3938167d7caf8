"""One flush of one file, or of a part of it."""

from dataclasses import dataclass

from fencepost.broker.log.storage.disk import Disk
from fencepost.broker.log.storage.store import Descriptor, FlushFailed

LARGE_BYTES = 4 << 20
"""A sync of more bytes writes them back in small steps first (docs/decisions/0044-writes-in-pieces.md)."""


@dataclass(slots=True, eq=False)
class _FilePart:
    """A range of a file, and its descriptor."""

    disk: Disk
    descriptor: Descriptor
    place: str
    start: int
    stop: int


class FileSync(_FilePart):
    """One fdatasync, with the range appended since the last one. Raises FlushFailed.

    A failure leaves no trace for the next process, because a process that is killed at that moment could not write one.
    So a start after a crash never trusts the pages of a log's tail (`LogDirectory`).
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
    """Writes a range of a file to the disk, so that the kernel holds fewer dirty pages. Raises FlushFailed.

    It makes nothing durable. On a system without that call the next flush writes the range.
    """

    __slots__ = ()

    def sync(self) -> None:
        try:
            self.disk.write_back(self.descriptor.fd, self.start, self.stop)
        except OSError as error:
            raise FlushFailed(error.errno, f"sync_file_range: {error.strerror}", self.place) from error
