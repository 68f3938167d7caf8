"""Flushes that take virtual time, in place of the threads that wait for a real disk."""

from collections.abc import Callable, Sequence
from random import Random

from fencepost.broker.log.durability.sync_threads import Failure
from fencepost.broker.log.storage.store import Syncable
from tests.kit.determinism import nap


class SimFlushes:
    """Flushes one file after the other; `seconds` says how long the next one takes, 0 for no time at all.

    Between two files anything may happen, a power cut too: then the first is durable and the second is not. With
    `order` they come in any order, as they do where several threads flush at a time; without it in that of the round.
    """

    def __init__(self, seconds: Callable[[], float], order: Random | None = None) -> None:
        self.seconds = seconds
        self._order = order
        self.count = 0
        """Files flushed so far."""
        self._under_way = 0

    @property
    def is_busy(self) -> bool:
        """Whether anything is being flushed; where the order is drawn, every other time in any case."""
        return self._under_way > 0 or (self._order is not None and self._order.random() < 0.5)

    def is_brief(self, count: int, size_bytes: int) -> bool:
        """One round in five, where the order is drawn; else never: then anything may happen before the flush."""
        return self._order is not None and self._order.random() < 0.2

    def sync_here(self, pins: Sequence[Syncable]) -> list[Failure]:
        """Sync all of `pins` in no time, and tell which ones failed; a power cut can still come between two of them."""
        return [failure for number, pin in self._ordered(pins) for failure in self._sync(number, pin)]

    async def sync(self, pins: Sequence[Syncable]) -> list[Failure]:
        """Sync all of `pins`, and tell which ones failed."""
        failures: list[Failure] = []
        self._under_way += 1
        try:
            for turn, (number, pin) in enumerate(self._ordered(pins)):
                seconds = self.seconds()
                if seconds or not turn:
                    await nap(seconds)
                failures += self._sync(number, pin)
        finally:
            self._under_way -= 1
        return failures

    def _ordered(self, pins: Sequence[Syncable]) -> list[tuple[int, Syncable]]:
        files = list(enumerate(pins))
        if self._order is not None:
            self._order.shuffle(files)
        return files

    def _sync(self, number: int, pin: Syncable) -> list[Failure]:
        self.count += 1
        try:
            pin.sync()
        except OSError as error:
            return [(number, error)]
        return []

    def close(self) -> None:
        """Nothing to end: there is no thread."""
