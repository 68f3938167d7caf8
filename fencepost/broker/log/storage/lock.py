"""A data directory belongs to one process at a time."""

import errno
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fencepost.broker.log.storage.layout import CORES_DIRECTORY, core_directories
from fencepost.broker.log.storage.store import FlushFailed

LOCK_FILE = ".lock"
RELEASE_SECONDS = 15.0
"""How long a start waits for the cores of one whose supervisor was killed: they are stopping."""
_RETRY_SECONDS = 0.01

logger = logging.getLogger(__name__)


class DirectoryInUse(Exception):
    """Another process (or another `LogManager` of this one) holds the data directory."""


def lock_directory(directory: Path) -> int:
    """Lock the directory for this process, against other fencepost brokers (flock) and Kafka (POSIX lock).

    The returned descriptor holds the lock until it is closed. Raises DirectoryInUse and OSError.
    """
    if os.name != "posix":
        raise OSError(errno.ENOSYS, "a data directory needs a POSIX system: keep the data in memory", str(directory))
    fd = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    return _locked(fd, directory, shared=False)


def lock_shared(directory: Path) -> int | None:
    """Like `lock_directory`, for a reader; None if no broker ever used the directory. Writes nothing."""
    try:
        fd = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    return _locked(fd, directory, shared=True)


@contextmanager
def all_locked(root: Path, *, shared: bool) -> Iterator[None]:
    """Lock a data directory and the directories of its cores. Raises DirectoryInUse and OSError."""
    held: list[int | None] = []
    try:
        for directory in core_directories(root).values():
            held.append(lock_shared(directory) if shared else lock_directory(directory))
        yield
    finally:
        for fd in held:
            if fd is not None:
                os.close(fd)


def hold_cores(root: Path) -> BinaryIO:
    """Wait until no core of an earlier start lives, and lock out later starts. Raises DirectoryInUse and OSError.

    Forked processes inherit the lock. So the last of them gives it back when it has ended, and its ports are free, too.
    """
    (root / CORES_DIRECTORY).mkdir(exist_ok=True)
    held = (root / CORES_DIRECTORY / LOCK_FILE).open("ab")
    if not lock_within(held.fileno(), 0):
        text = "the cores of another broker use %s: if they are stopping, this one starts then, within %.0f s"
        logger.warning(text, root, RELEASE_SECONDS)
        if not lock_within(held.fileno(), RELEASE_SECONDS):
            held.close()
            raise DirectoryInUse(f"{root} is in use by the cores of another broker")
    return held


def lock_within(fd: int, seconds: float) -> bool:
    """Lock an open file or directory. Returns False if another process holds it until `seconds` have passed."""
    import fcntl  # here: a broker in memory also runs where there is no such module

    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_RETRY_SECONDS)
        else:
            return True


def check_lock(directory: Path, fd: int) -> None:
    """Raise FlushFailed if the locked file is not in the directory any more: what is written there would be lost."""
    try:
        is_there = os.path.samestat(os.stat(directory / LOCK_FILE, follow_symlinks=False), os.fstat(fd))
    except FileNotFoundError:
        is_there = False
    if not is_there:
        raise FlushFailed(errno.ENOENT, f"the data directory, or its file {LOCK_FILE}, was deleted", str(directory))


def _locked(fd: int, directory: Path, *, shared: bool) -> int:
    import fcntl  # here: a broker in memory also runs where there is no such module

    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        fcntl.lockf(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise DirectoryInUse(f"{directory} is in use by another broker") from error
    return fd
