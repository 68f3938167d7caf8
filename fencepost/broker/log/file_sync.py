"""One flush of one file; one that fails leaves word of it for the next process, who could not tell."""

import logging
import os

from fencepost.broker.log.checkpoints import LEADER_EPOCHS
from fencepost.broker.log.disk import Disk
from fencepost.broker.log.store import Descriptor, FlushFailed, Store

FLUSH_FAILED = "flush-failed"
"""A file of this name in a directory: a flush of a file beside it failed, and its page cache can not be believed."""

logger = logging.getLogger(__name__)


def is_distrusted(store: Store) -> bool:
    """Whether a flush of a file in this directory failed, and its page cache can not be believed. Raises OSError."""
    return store.load(FLUSH_FAILED) is not None or store.load(LEADER_EPOCHS) == b""


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
        directory = self._place.rpartition("/")[0]
        try:
            self._disk.close(self._disk.open(f"{directory}/{FLUSH_FAILED}", flags, 0o600))
        except OSError as error:
            self._leave_word_on_a_full_disk(directory, error)

    def _leave_word_on_a_full_disk(self, directory: str, refused: OSError) -> None:
        """Empty the checkpoint of leader epochs: it takes no space, nobody else does it, and the batches know them."""
        try:
            fd = self._disk.open(f"{directory}/{LEADER_EPOCHS}", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0)
            try:
                self._disk.ftruncate(fd, 0)
            finally:
                self._disk.close(fd)
        except OSError as error:
            logger.error("no word left beside %s of its failed flush: %s; %s", self._place, refused, error)
