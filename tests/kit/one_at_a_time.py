"""Work that several test processes may want at the same moment, and that only one of them may do."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Wait until no other process is in here with the same file, which is made where it is missing."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
