"""Flushes that take virtual time, in place of the threads that wait for a real disk."""

from collections.abc import Callable, Sequence

import trio

from fencepost.broker.log.store import Syncable
from fencepost.broker.log.sync_thread import Failure


class SimFlushes:
    """Flushes one file after the other; `seconds` says how long the next one takes, 0 for no time at all.

    Between two files anything may happen, a power cut too: then the first is durable and the second is not.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds
        self.count = 0
        """Files flushed so far."""

    async def sync(self, pins: Sequence[Syncable]) -> list[Failure]:
        """Sync all of `pins`, and tell which ones failed."""
        failures: list[Failure] = []
        for number, pin in enumerate(pins):
            seconds = self.seconds()
            if seconds or not number:
                await trio.sleep(seconds)
            self.count += 1
            try:
                pin.sync()
            except OSError as error:
                failures.append((number, error))
        return failures

    def close(self) -> None:
        """Nothing to end: there is no thread."""
