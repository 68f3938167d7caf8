"""A data directory belongs to one process at a time."""

import fcntl
import os
from pathlib import Path

LOCK_FILE = ".lock"


class DirectoryInUse(Exception):
    """Another process (or another `LogDirectory` of this one) holds the data directory."""


def lock_directory(directory: Path) -> int:
    """Lock the directory for this process, against ourselves (flock) and against a Kafka (POSIX lock).

    The descriptor that is returned holds the lock until it is closed. Raises DirectoryInUse and OSError.
    """
    fd = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise DirectoryInUse(f"{directory} is in use by another broker") from error
    return fd
