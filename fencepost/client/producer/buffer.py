"""The memory that records wait in, by bytes; who comes first gets room first."""

import math
from collections import deque

import anyio
import anyio.lowlevel


class _Waiter:
    __slots__ = ("granted", "size_bytes", "woken")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.woken = anyio.Event()
        self.granted = False


class BufferMemory:
    """`limit` bytes (`buffer_memory`). Room is given strictly in the order of asking, so a large record is not starved
    by small ones that come later."""

    __slots__ = ("_waiters", "limit", "used", "wait_ns", "waited")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.waited = 0
        """How often a record had to wait."""
        self.wait_ns = 0
        """Nanoseconds that records have waited in all."""
        self._waiters: deque[_Waiter] = deque()

    @property
    def waiting(self) -> int:
        """How many tasks wait for room."""
        return len(self._waiters)

    @property
    def full(self) -> bool:
        """Whether nobody gets room now: the memory is used up, or others wait already."""
        return bool(self._waiters) or self.used >= self.limit

    def take(self, size_bytes: int) -> bool:
        """Take room if it is there and nobody waits."""
        if self._waiters or self.used + size_bytes > self.limit:
            return False
        self.used += size_bytes
        return True

    async def wait(self, size_bytes: int) -> None:
        """Take room, after everybody who came before. If this is cancelled nothing is taken."""
        if self.take(size_bytes):
            try:
                await anyio.lowlevel.checkpoint()
            except anyio.get_cancelled_exc_class():
                self.give_back(size_bytes)
                raise
            return
        waiter = _Waiter(size_bytes)
        self._waiters.append(waiter)
        self.waited += 1
        began = anyio.current_time()
        try:
            await waiter.woken.wait()
        except anyio.get_cancelled_exc_class():
            if waiter.granted:
                self.give_back(size_bytes)
            else:
                self._waiters.remove(waiter)
                self._grant()
            raise
        finally:
            self.wait_ns += int((anyio.current_time() - began) * 1e9)

    def give_back(self, size_bytes: int) -> None:
        """Room is free again: whoever waits longest gets it, if it is enough."""
        self.used -= size_bytes
        self._grant()

    def let_all_in(self) -> None:
        """Nothing is sent any more: whoever waits is not to wait for room, but to hear that."""
        self._grant(math.inf)

    def _grant(self, limit: float | None = None) -> None:
        limit = self.limit if limit is None else limit
        while self._waiters and self.used + self._waiters[0].size_bytes <= limit:
            waiter = self._waiters.popleft()
            self.used += waiter.size_bytes
            waiter.granted = True
            waiter.woken.set()
