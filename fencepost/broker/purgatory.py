"""Fetches that wait for data: one event each, woken by the logs they wait on (Kafka's fetch purgatory)."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

if TYPE_CHECKING:
    from fencepost.broker.log.partition import PartitionLog


class ParkedFetch:
    """One waiting fetch; a context manager that is registered with its logs while it is open.

    A log calls `wake` when its high watermark or last stable offset moves, or when it is deleted. That may happen
    many times before the task runs; it costs one flag.
    """

    __slots__ = ("_event", "_logs", "_purgatory")

    def __init__(self, purgatory: "Purgatory", logs: Iterable["PartitionLog"]) -> None:
        self._purgatory = purgatory
        self._logs = tuple(logs)
        self._event = trio.Event()

    def wake(self) -> None:
        """Let the fetch look again."""
        self._event.set()

    async def wait_until(self, ready: Callable[[], bool], max_wait_ms: int) -> None:
        """Return when `ready()` holds, the time is over, or the broker stops; `ready` is asked after each wake-up."""
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

    def park(self, logs: Iterable["PartitionLog"]) -> ParkedFetch:
        """A fetch that waits on `logs`, to be used in a `with`."""
        return ParkedFetch(self, logs)

    def close(self) -> None:
        """Let every fetch answer with what it has, now and from now on: the broker stops."""
        self.closed = True
        for fetch in tuple(self.parked):
            fetch.wake()
