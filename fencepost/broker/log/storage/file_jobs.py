"""Slow work on files: the event loop prepares it, and any thread does it by calling `sync`."""

from collections.abc import Callable


class FileJob:
    """A deferred call of a store; it must hold all of its arguments, because the store may change before the call."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def sync(self) -> None:
        """Do the work. Raises OSError."""
        self._work()


class Deletion(FileJob):
    """Frees the space of files that are renamed already, so it can be delayed, or left to the next start."""
