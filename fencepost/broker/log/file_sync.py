"""One flush of one file."""

from fencepost.broker.log.disk import Disk
from fencepost.broker.log.store import Descriptor, FlushFailed


class FileSync:
    """One fdatasync, with the descriptor it needs. Raises FlushFailed.

    Nothing is left that tells the next process of a failure: whoever is killed that moment could leave nothing, so a
    start after a crash believes no page of a log's tail in any case (`LogDirectory`).
    """

    def __init__(self, disk: Disk, descriptor: Descriptor, place: str) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._place = place

    def sync(self) -> None:
        try:
            self._disk.fdatasync(self._descriptor.fd)
        except OSError as error:
            raise FlushFailed(error.errno, f"fdatasync: {error.strerror}", self._place) from error
