"""The producer's buffer memory, in bytes; first come, first served."""

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
    """`limit` bytes (`buffer_memory`). Requests for room are served strictly in order, so a large record is not starved
    by later small ones."""

    __slots__ = ("_waiters", "limit", "used", "wait_ns", "waited")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.waited = 0
        """How often a record had to wait."""
        self.wait_ns = 0
        """The total time that records have waited, in nanoseconds."""
        self._waiters: deque[_Waiter] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    @property
    def full(self) -> bool:
        """Whether no record gets room now: the memory is used up, or other tasks wait already."""
        return bool(self._waiters) or self.used >= self.limit

    def take(self, size_bytes: int) -> bool:
        """Take room if there is enough and no other task waits."""
        if self._waiters or self.used + size_bytes > self.limit:
            return False
        self.used += size_bytes
        return True

    async def wait(self, size_bytes: int) -> None:
        """Wait for room, after all earlier tasks. A cancelled wait takes nothing."""
        if self.take(size_bytes):
            try:
                await anyio.lowlevel.checkpoint()
            except anyio.get_cancelled_exc_class():
                self.release(size_bytes)
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
                self.release(size_bytes)
            else:
                self._waiters.remove(waiter)
                self._grant()
            raise
        finally:
            self.wait_ns += int((anyio.current_time() - began) * 1e9)

    def release(self, size_bytes: int) -> None:
        """Free room: the task that has waited longest gets it, if it is enough."""
        self.used -= size_bytes
        self._grant()

    def release_all(self) -> None:
        """Nothing is sent any more: let all waiting tasks continue, so that they meet the producer's error."""
        self._grant(math.inf)

    def _grant(self, limit: float | None = None) -> None:
        limit = self.limit if limit is None else limit
        while self._waiters and self.used + self._waiters[0].size_bytes <= limit:
            waiter = self._waiters.popleft()
            self.used += waiter.size_bytes
            waiter.granted = True
            waiter.woken.set()
