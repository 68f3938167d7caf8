"""The directory with one run's cache and tails: nothing in it is needed after the run.

A broker that is killed leaves its directory, so brokers delete those that no living process has locked.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

import trio

PREFIX = "fencepost-cache-"


class Scratch:
    """An empty directory in `parent`, or in the system's temporary one. Raises OSError."""

    def __init__(self, parent: str | None) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            self._lock = os.open(self.path, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if self.path.exists():
                return
            os.close(self._lock)  # another broker took it for abandoned before it was locked

    def remove(self) -> None:
        """Delete it. Blocks."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


async def remove_later(scratch: Scratch) -> None:
    """Delete it in a thread, also if the task is cancelled before it begins."""
    with trio.CancelScope(shield=True):
        await trio.to_thread.run_sync(scratch.remove)


def remove_abandoned(parent: str | None) -> None:
    """Delete the directories of brokers that were killed. Blocks."""
    for path in Path(parent or tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # a broker has locked or deleted it, or it belongs to another user
            _remove_if_abandoned(path)


def _remove_if_abandoned(path: Path) -> None:
    lock = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)
