"""Many timers behind one sleeping task: restarting one, which every heartbeat does, is one dictionary write."""

import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class Timers(Generic[KeyT]):
    """Deadlines by key, in seconds of a monotonic clock.

    A heap orders them lazily: an entry whose deadline has moved is pushed again when it is popped.
    """

    def __init__(self) -> None:
        self._deadlines: dict[KeyT, float] = {}
        self._heap: list[tuple[float, int, KeyT]] = []
        self._queued: dict[KeyT, float] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: KeyT) -> bool:
        return key in self._deadlines

    def set(self, key: KeyT, deadline: float) -> bool:
        """Start or restart the timer; True if no other timer is due earlier (the sleeping task must wake)."""
        self._deadlines[key] = deadline
        queued = self._queued.get(key)
        if queued is not None and queued <= deadline:
            return False
        earliest = not self._heap or deadline < self._heap[0][0]
        self._push(key, deadline)
        return earliest

    def set_many(self, delays: Iterable[tuple[KeyT, int | None]], now: float) -> bool:
        """Start timers, or stop those without a delay (in ms from `now`); True as with `set`, for any of them."""
        deadlines, queued = self._deadlines, self._queued
        earliest = False
        for key, delay_ms in delays:
            if delay_ms is None:
                deadlines.pop(key, None)
                continue
            deadline = deadlines[key] = now + delay_ms / 1000
            if queued.get(key, math.inf) > deadline:
                earliest |= self.set(key, deadline)
        return earliest

    def stop(self, key: KeyT) -> None:
        """Stop the timer, if it runs."""
        self._deadlines.pop(key, None)

    def stop_all(self, wanted: Callable[[KeyT], bool]) -> None:
        """Stop every timer for whose key `wanted` returns True."""
        for key in [key for key in self._deadlines if wanted(key)]:
            del self._deadlines[key]

    def due(self, now: float) -> Iterator[KeyT]:
        """Remove and yield the timers that are due, earliest first, each when the caller asks for the next.

        So the handling of one timer may stop or restart the others. After a stall many are due at once: a member whose
        JoinGroup has just been answered because of the first timer must not be removed by the second.
        """
        while self._heap and self._heap[0][0] <= now:
            deadline, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != deadline:
                continue
            del self._queued[key]
            wanted = self._deadlines.get(key)
            if wanted is None:
                continue
            if wanted > now:
                self._push(key, wanted)
            else:
                del self._deadlines[key]
                yield key

    def next_deadline(self) -> float | None:
        """When to look again; may be early, never late."""
        return self._heap[0][0] if self._heap else None

    def _push(self, key: KeyT, deadline: float) -> None:
        self._serial += 1
        self._queued[key] = deadline
        heapq.heappush(self._heap, (deadline, self._serial, key))
