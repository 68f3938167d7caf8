"""Flushes that take virtual time, in place of the threads that wait for a real disk."""

from collections.abc import Callable, Sequence
from random import Random

from fencepost.broker.log.durability.sync_threads import Failure
from fencepost.broker.log.storage.store import SyncTask
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

    def sync_inline(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        """Sync all of `sync_targets` in no time, and tell which ones failed; a power cut can come between two."""
        return [failure for number, target in self._ordered(sync_targets) for failure in self._sync(number, target)]

    async def sync(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        """Sync all of `sync_targets`, and tell which ones failed."""
        failures: list[Failure] = []
        self._under_way += 1
        try:
            for turn, (number, target) in enumerate(self._ordered(sync_targets)):
                seconds = self.seconds()
                if seconds or not turn:
                    await nap(seconds)
                failures += self._sync(number, target)
        finally:
            self._under_way -= 1
        return failures

    def _ordered(self, sync_targets: Sequence[SyncTask]) -> list[tuple[int, SyncTask]]:
        files = list(enumerate(sync_targets))
        if self._order is not None:
            self._order.shuffle(files)
        return files

    def _sync(self, number: int, target: SyncTask) -> list[Failure]:
        self.count += 1
        try:
            target.sync()
        except OSError as error:
            return [(number, error)]
        return []

    def close(self) -> None:
        """Nothing to end: there is no thread."""
