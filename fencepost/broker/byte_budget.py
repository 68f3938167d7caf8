"""A bound on the bytes that all connections together hold."""

import math
from dataclasses import dataclass, field

import trio


@dataclass(slots=True, eq=False)
class _Waiting:
    """A task that waits for `count` bytes; they are its own once they are `taken`."""

    count: int
    taken: trio.Event = field(default_factory=trio.Event)


class ByteBudget:
    """Bytes that are held, and the tasks that wait for some of them. `limit` -1 means no bound."""

    __slots__ = ("_waiting", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit: float = math.inf if limit < 0 else limit
        self.used = 0
        self._waiting: list[_Waiting] = []

    @property
    def is_short(self) -> bool:
        return bool(self._waiting)

    def left(self, at_least: int) -> int:
        """The bytes that are left, but not less than `at_least`, so that every client makes progress."""
        return at_least if self.used + at_least >= self.limit else int(min(self.limit - self.used, 1 << 62))

    def try_take(self, count: int) -> bool:
        if self.used + count > self.limit:
            return False
        self.used += count
        return True

    def take(self, count: int) -> None:
        """Take `count` bytes that exist already, even if they are too many."""
        self.used += count

    def give(self, count: int) -> None:
        """Give back bytes; those of the waiting tasks that they suffice for take them, the first one first."""
        self.used -= count
        assert self.used >= 0, "more bytes were given back than taken"
        for waiting in [one for one in self._waiting if self.try_take(one.count)]:
            self._waiting.remove(waiting)
            waiting.taken.set()

    async def take_later(self, count: int) -> None:
        """Take `count` bytes as soon as others give them back."""
        waiting = _Waiting(count)
        self._waiting.append(waiting)
        try:
            await waiting.taken.wait()
        except trio.Cancelled:
            if waiting.taken.is_set():
                self.give(count)
            else:
                self._waiting.remove(waiting)
            raise
