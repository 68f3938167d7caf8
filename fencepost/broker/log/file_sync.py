"""One flush of one file; one that fails leaves word of it for the next process, who could not tell."""

import logging
import os

from fencepost.broker.log.disk import Disk
from fencepost.broker.log.store import Descriptor, FlushFailed

FLUSH_FAILED = "flush-failed"
"""A file of this name in a directory: a flush of a file beside it failed, and its page cache can not be believed."""

logger = logging.getLogger(__name__)


class FileSync:
    """One fdatasync, with the descriptor it needs. Raises FlushFailed."""

    def __init__(self, disk: Disk, descriptor: Descriptor, place: str) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._place = place

    def sync(self) -> None:
        try:
            self._disk.fdatasync(self._descriptor.fd)
        except OSError as error:
            self._leave_word()
            raise FlushFailed(error.errno, f"fdatasync: {error.strerror}", self._place) from error

    def _leave_word(self) -> None:
        """Tell the next process, which finds the bytes in the page cache, that the disk may not have them.

        The word need not be durable: what loses it loses the page cache, too.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._disk.close(self._disk.open(f"{self._place.rpartition('/')[0]}/{FLUSH_FAILED}", flags, 0o600))
        except OSError as error:
            logger.error("no word left beside %s of its failed flush: %s", self._place, error.strerror)
