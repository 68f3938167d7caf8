"""Work on files that takes its time, made ready by the event loop and done by whoever syncs it, in any thread."""

from collections.abc import Callable


class FileJob:
    """A call of a store that may wait; it has to say all that it does by itself, for much may have changed by then."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def sync(self) -> None:
        """Do it. Raises OSError."""
        self._work()


class Deletion(FileJob):
    """Frees the space of what has lost its name already; so it may wait, and be left to the next start."""
