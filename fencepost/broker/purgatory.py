"""Fetches that wait for data: their logs wake them (Kafka's fetch purgatory)."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol, Self

import trio

from fencepost.broker.log.results import Watcher


class Watched(Protocol):
    """What a fetch waits for: a partition's log, or a share partition."""

    watchers: dict[Watcher, None]


class ParkedFetch:
    """One waiting fetch; a context manager that is registered with its logs while it is open.

    A log calls `wake` when its high watermark or last stable offset moves, or when it is disowned. Many calls before
    the task runs cost no more than one.
    """

    __slots__ = ("_event", "_logs", "_purgatory")

    def __init__(self, purgatory: "Purgatory", logs: Iterable[Watched]) -> None:
        self._purgatory = purgatory
        self._logs = tuple(logs)
        self._event = trio.Event()

    def wake(self) -> None:
        """Have the fetch check its condition again."""
        self._event.set()

    async def wait_until(self, ready: Callable[[], bool], max_wait_ms: int) -> None:
        """Return when `ready()` is true, the time is over, or the broker stops; checks `ready` after each wake-up."""
        with trio.move_on_after(max_wait_ms / 1000):
            while not ready() and not self._purgatory.closed:
                await self._event.wait()
                self._event = trio.Event()

    def __enter__(self) -> Self:
        self._purgatory.parked.add(self)
        for log in self._logs:
            log.watchers[self] = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._purgatory.parked.discard(self)
        for log in self._logs:
            log.watchers.pop(self, None)


class Purgatory:
    """All waiting fetches of a broker. There is at most one per connection, which bounds them."""

    def __init__(self) -> None:
        self.parked: set[ParkedFetch] = set()
        self.closed = False

    def park(self, logs: Iterable[Watched]) -> ParkedFetch:
        return ParkedFetch(self, logs)

    def close(self) -> None:
        """Have every fetch respond at once with the records it has, because the broker stops."""
        self.closed = True
        for fetch in tuple(self.parked):
            fetch.wake()
