"""Bounds the open descriptors of log files below the limit of the process."""

import resource
import threading
from collections import OrderedDict
from typing import Protocol

from fencepost.broker.log.storage.store import Descriptor


class Holder(Protocol):
    """A file that holds a descriptor, and can reopen it on its next use."""

    descriptor: Descriptor | None
    recently_used: bool


class DescriptorPool:
    """Bounds the open descriptors: for each new one, a file that was not used recently closes its own.

    Threads may share it; each file belongs to one of them at a time.
    """

    def __init__(self, capacity: int | None = None) -> None:
        soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._capacity = capacity if capacity is not None else max(16, min(4096, soft_limit // 2))
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
