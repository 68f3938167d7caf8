"""How many files of the logs are open at once: fewer than the process may have."""

import resource
from collections import OrderedDict
from typing import Protocol

from fencepost.broker.log.storage.store import Descriptor


class Holder(Protocol):
    """A file that holds a descriptor, and can do without until it is used again."""

    descriptor: Descriptor | None
    recently_used: bool


class DescriptorPool:
    """Bounds the descriptors held open: on a new one, a file not used since the last round gives its own back."""

    def __init__(self, capacity: int | None = None) -> None:
        soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._capacity = capacity if capacity is not None else max(16, min(4096, soft_limit // 2))
        self._holders: OrderedDict[Holder, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def admit(self, file: Holder) -> None:
        """`file` has just opened a descriptor."""
        while len(self._holders) >= self._capacity:
            holder, _ = self._holders.popitem(last=False)
            if holder.recently_used:
                holder.recently_used = False
                self._holders[holder] = None
            else:
                holder.descriptor = None
        self._holders[file] = None

    def forget(self, file: Holder) -> None:
        """`file` has let its descriptor go by itself."""
        self._holders.pop(file, None)
