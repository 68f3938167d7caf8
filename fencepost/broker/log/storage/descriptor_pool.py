"""Bounds the open descriptors of log files below the limit of the process."""

import threading
from collections import OrderedDict
from typing import Protocol

from fencepost.broker.log.storage.store import Descriptor


class Holder(Protocol):
    """A file that holds a descriptor, and can reopen it on its next use."""

    descriptor: Descriptor | None
    recently_used: bool


OTHER_DESCRIPTORS = 64
"""Listeners, pipes, directories while they are flushed, small files: what is no segment and no connection."""


WINDOWS_DESCRIPTORS = 8192
"""What a process may open on Windows, which has no such limit for sockets."""


def _descriptors() -> int:
    """How many descriptors this process may have open."""
    try:
        import resource  # here: not on Windows
    except ModuleNotFoundError:
        return WINDOWS_DESCRIPTORS
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def descriptors_for_files() -> int:
    """How many segment files may be open: up to half of what the process may open."""
    return max(16, min(4096, _descriptors() // 2))


def descriptors_for_connections() -> int:
    """How many connections may be open without taking descriptors from the files: a log that cannot open its files
    cannot be written.
    """
    return max(1, _descriptors() - descriptors_for_files() - OTHER_DESCRIPTORS)


def raise_descriptor_limit() -> int:
    """Raise the process's limit of open files to its hard limit, as Java does for Kafka (-XX:+MaxFDLimit).

    Returns the new limit.
    """
    import resource

    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    return hard_limit


class DescriptorPool:
    """Bounds the open descriptors: for each new one, a file that was not used recently closes its own.

    Threads may share it; each file belongs to one of them at a time.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity if capacity is not None else descriptors_for_files()
        self._holders: OrderedDict[Holder, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._holders)

    def admit(self, file: Holder) -> None:
        """Add `file`, which has just opened a descriptor."""
        with self._lock:
            while len(self._holders) >= self._capacity:
                holder, _ = self._holders.popitem(last=False)
                if holder.recently_used:
                    holder.recently_used = False
                    self._holders[holder] = None
                else:
                    holder.descriptor = None
            self._holders[file] = None

    def forget(self, file: Holder) -> None:
        """Remove `file`, which has closed its descriptor itself."""
        with self._lock:
            self._holders.pop(file, None)
