"""Deleted files keep their bytes for `file.delete.delay.ms`, as in Kafka, except on a full disk (row L3)."""

import errno
from collections.abc import Collection

from fencepost.broker.log.storage.store import Deletion, SyncTask

FULL_SECONDS = 600.0
"""For this time after the error of a full disk deletions run without a delay, because the space is needed."""


def is_full_disk(error: Exception) -> bool:
    """Whether the disk, or the quota on it, had no room for a write."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


class BackgroundTasks:
    """Tasks for a background thread, and deletions that wait for their delay."""

    def __init__(self) -> None:
        self._at_once: list[SyncTask] = []
        self._new: list[tuple[Deletion, float]] = []
        self._waiting: list[tuple[float, Deletion]] = []
        self._room_wanted = False
        self._full_until = float("-inf")

    def add(self, tasks: Collection[SyncTask], delay_ms: int) -> None:
        """Add tasks. A deletion waits for `delay_ms`, counted from the next `due`; any other task is due at once."""
        for task in tasks:
            if isinstance(task, Deletion):
                self._new.append((task, delay_ms / 1000))
            else:
                self._at_once.append(task)

    def make_room(self) -> None:
        """The disk is full: all deletions are due, also those added within the next `FULL_SECONDS`."""
        self._room_wanted = True

    def due(self, seconds: float | None) -> list[SyncTask]:
        """The tasks that are due at `seconds` of a monotonic clock; all of them for None. Returns each task once."""
        if self._room_wanted and seconds is not None:
            self._full_until, self._room_wanted = seconds + FULL_SECONDS, False
        due, self._at_once = self._at_once, []
        everything = seconds is None or seconds < self._full_until
        self._waiting += [(0.0 if seconds is None else seconds + delay, deletion) for deletion, delay in self._new]
        self._new = []
        due += [deletion for when, deletion in self._waiting if everything or when <= (seconds or 0.0)]
        self._waiting = [] if everything else [entry for entry in self._waiting if entry[0] > (seconds or 0.0)]
        return due
