"""What was deleted keeps its bytes for `file.delete.delay.ms`, as in Kafka; on a full disk nothing does (row L3)."""

import errno
from collections.abc import Collection

from fencepost.broker.log.storage.file_jobs import Deletion
from fencepost.broker.log.storage.store import SyncTask

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
"""The errors that say so."""
FULL_SECONDS = 600.0
"""How long after one of them nothing waits: what retention deletes then is to be of use at once."""


class Chores:
    """What a thread is to do by the way, and files without a name that wait to be deleted."""

    def __init__(self) -> None:
        self._at_once: list[SyncTask] = []
        self._new: list[tuple[Deletion, float]] = []
        self._waiting: list[tuple[float, Deletion]] = []
        self._room_wanted = False
        self._full_until = float("-inf")

    def add(self, chores: Collection[SyncTask], delay_ms: int) -> None:
        """Deletions wait so long, counted from the next `due` on; all else is due."""
        for chore in chores:
            if isinstance(chore, Deletion):
                self._new.append((chore, delay_ms / 1000))
            else:
                self._at_once.append(chore)

    def make_room(self) -> None:
        """The disk is full: nothing waits any more, nor does what comes within the next ten minutes."""
        self._room_wanted = True

    def due(self, seconds: float | None) -> list[SyncTask]:
        """What is to be done now, at `seconds` of a monotonic clock; None for all, however long it was to wait.

        Each is told of once.
        """
        if self._room_wanted and seconds is not None:
            self._full_until, self._room_wanted = seconds + FULL_SECONDS, False
        due, self._at_once = self._at_once, []
        everything = seconds is None or seconds < self._full_until
        self._waiting += [(0.0 if seconds is None else seconds + delay, deletion) for deletion, delay in self._new]
        self._new = []
        due += [deletion for when, deletion in self._waiting if everything or when <= (seconds or 0.0)]
        self._waiting = [] if everything else [entry for entry in self._waiting if entry[0] > (seconds or 0.0)]
        return due
