"""Trying again until one deadline: growing pauses with jitter, from a random source that a test can seed."""

import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from fencepost.client.core.partitioner import Random
from fencepost.client.errors import KafkaError, RetriableError

T = TypeVar("T")
_JITTER = 0.2


class Backoff:
    """Pauses that double from `first_ms` to `last_ms`, each up to a fifth shorter or longer."""

    __slots__ = ("_attempt", "_first", "_last", "_random")

    def __init__(self, first_ms: int, last_ms: int, random: Random) -> None:
        self._first, self._last, self._random = first_ms / 1000, last_ms / 1000, random
        self._attempt = 0

    def next_delay(self) -> float:
        """How many seconds to pause before the next attempt."""
        plain: float = min(self._first * 2.0 ** min(self._attempt, 30), self._last)
        self._attempt += 1
        return plain * (1 - _JITTER + 2 * _JITTER * self._random.random())

    def reset(self) -> None:
        """Begin with the shortest pause again, after a success."""
        self._attempt = 0

    async def pause(self) -> None:
        await trio.sleep(self.next_delay())


class RetryPolicy:
    """How long one call of the API keeps trying; handed down from the client's configuration."""

    __slots__ = ("deadline_ms", "first_ms", "last_ms", "random")

    def __init__(self, first_ms: int, last_ms: int, deadline_ms: int, random: Random) -> None:
        self.first_ms, self.last_ms, self.deadline_ms, self.random = first_ms, last_ms, deadline_ms, random

    def backoff(self) -> Backoff:
        return Backoff(self.first_ms, self.last_ms, self.random)

    async def run(
        self, attempt: Callable[[], Awaitable[T]], *, deadline_ms: float | None = None, what: str = "the call"
    ) -> T:
        """Call `attempt` until it returns, raises something that is not retriable, or the deadline ends.

        At the deadline the last RetriableError is raised, with a note of how long was tried; an attempt that is
        still under way is cancelled.
        """
        limit_ms = self.deadline_ms if deadline_ms is None else deadline_ms
        backoff = self.backoff()
        last: RetriableError | None = None
        ends = trio.current_time() + limit_ms / 1000 if limit_ms != math.inf else math.inf
        with trio.move_on_at(ends):
            while True:
                try:
                    return await attempt()
                except RetriableError as error:
                    last = error
                await backoff.pause()
        if last is None:
            raise RetriableError(f"{what} got no answer within {limit_ms / 1000:g} s")
        raise gave_up(last, what, limit_ms / 1000)


def gave_up(last: KafkaError, what: str, seconds: float) -> RetriableError:
    """The error for a deadline that ended, built around what went wrong last."""
    error = RetriableError(
        f"gave up on {what} after {seconds:g} s; last: {last.args[0]}", code=last.code, api=last.api, node=last.node
    )
    error.__cause__ = last
    return error
