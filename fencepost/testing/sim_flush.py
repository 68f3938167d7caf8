"""Flushes that take virtual time, in place of the threads that wait for a real disk."""

from collections.abc import Callable, Sequence
from random import Random

import trio

from fencepost.broker.log.store import Syncable
from fencepost.broker.log.sync_thread import Failure


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

    def is_brief(self, count: int, size_bytes: int) -> bool:
        """Never: between the request and the flush anything may happen."""
        return False

    def sync_here(self, pins: Sequence[Syncable]) -> list[Failure]:
        """Not to be asked: no flush is brief."""
        raise AssertionError("no flush is brief in a simulation")

    async def sync(self, pins: Sequence[Syncable]) -> list[Failure]:
        """Sync all of `pins`, and tell which ones failed."""
        failures: list[Failure] = []
        files = list(enumerate(pins))
        if self._order is not None:
            self._order.shuffle(files)
        for turn, (number, pin) in enumerate(files):
            seconds = self.seconds()
            if seconds or not turn:
                await trio.sleep(seconds)
            self.count += 1
            try:
                pin.sync()
            except OSError as error:
                failures.append((number, error))
        return failures

    def close(self) -> None:
        """Nothing to end: there is no thread."""
