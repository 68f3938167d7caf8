"""A bound on the bytes that all connections together hold."""

import math

import trio


class ByteBudget:
    """Bytes that are held, and the tasks that wait for some of them. `limit` -1 means no bound."""

    __slots__ = ("_lot", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit: float = math.inf if limit < 0 else limit
        self.used = 0
        self._lot = trio.lowlevel.ParkingLot()

    @property
    def is_short(self) -> bool:
        """Whether a task waits for bytes."""
        return bool(self._lot)

    def left(self, at_least: int) -> int:
        """The bytes that are left, but not less than `at_least`, so that every client makes progress."""
        return at_least if self.used + at_least >= self.limit else int(min(self.limit - self.used, 1 << 62))

    def try_take(self, count: int) -> bool:
        """Take `count` bytes, unless they are too many."""
        if self.used + count > self.limit:
            return False
        self.used += count
        return True

    def take(self, count: int) -> None:
        """Take `count` bytes that exist already, even if they are too many."""
        self.used += count

    def give(self, count: int) -> None:
        """Give back bytes, and wake all that wait."""
        self.used -= count
        assert self.used >= 0, "more bytes were given back than taken"
        if self._lot:
            self._lot.unpark_all()

    async def wait(self) -> None:
        """Wait until some bytes are given back."""
        await self._lot.park()
