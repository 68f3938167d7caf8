"""Retries until one deadline: growing pauses with jitter, from a random source that a test can seed."""

import logging
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from fencepost.client.core.partitioner import Random
from fencepost.client.errors import ConnectionLostError, KafkaError, RetriableError

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
_JITTER = 0.2
_FIRST_WARNING_S = 1.0
_NEXT_WARNING_S = 10.0


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
        self._attempt = 0

    async def pause(self) -> None:
        await anyio.sleep(self.next_delay())


class RetryWarnings:
    """Logs the retries of one client: after a second, then every ten seconds at most.

    One warning covers all calls that wait for the same unreachable broker, and one says when it is reached again.
    """

    __slots__ = ("_unreachable", "_warned_at")

    def __init__(self) -> None:
        self._warned_at: dict[str, float] = {}
        self._unreachable = False

    def failed(self, what: str, since: float, error: KafkaError, ends: float = math.inf) -> None:
        """`what` has failed since `since`, now with `error`, and is retried until `ends`, on the event loop's clock."""
        now = anyio.current_time()
        subject = "" if isinstance(error, ConnectionLostError) else what
        if now - since < _FIRST_WARNING_S or not self._is_due(subject, now):
            return
        self._unreachable |= isinstance(error, ConnectionLostError)
        left = "until it succeeds" if ends == math.inf else f"for {max(ends - now, 0.0):.0f} s more"
        _LOG.warning("%s has failed for %.0f s: %s. The client tries again %s", what, now - since, error, left)

    def connected(self, where: str) -> None:
        """A connection was opened to an address that could not be reached before."""
        if self._unreachable:
            self._unreachable = False
            _LOG.warning("%s can be reached again", where)

    def aborted(self, transactional_id: str, error: KafkaError) -> None:
        """A transaction was aborted, and the next one with the same records would be, too."""
        what = f"A transaction of {transactional_id!r}"
        if self._is_due(what, anyio.current_time()):
            _LOG.warning("%s was aborted: %s. The same records or offsets will fail again", what, error)

    def _is_due(self, subject: str, now: float) -> bool:
        """Whether the last warning about `subject` is long ago. If so, this counts as one."""
        self._warned_at = {name: at for name, at in self._warned_at.items() if now - at < _NEXT_WARNING_S}
        if subject in self._warned_at:
            return False
        self._warned_at[subject] = now
        return True


class RetryLoop(Backoff):
    """Pauses and warnings of a background task that retries until it succeeds."""

    __slots__ = ("_since", "_warnings", "_what")

    def __init__(self, policy: "RetryPolicy", what: str) -> None:
        super().__init__(policy.first_ms, policy.last_ms, policy.random)
        self._warnings = policy.warnings
        self._what = what
        self._since: float | None = None

    @property
    def failing(self) -> bool:
        return self._since is not None

    def reset(self) -> None:
        super().reset()
        self._since = None

    async def failed(self, error: KafkaError) -> None:
        """Warn if it has failed for long, and pause before the next attempt."""
        if self._since is None:
            self._since = anyio.current_time()
        self._warnings.failed(self._what, self._since, error)
        await self.pause()


class RetryPolicy:
    """How long one call of the API retries; from the client's configuration."""

    __slots__ = ("deadline_ms", "first_ms", "last_ms", "random", "warnings")

    def __init__(
        self, first_ms: int, last_ms: int, deadline_ms: int, random: Random, warnings: RetryWarnings | None = None
    ) -> None:
        self.first_ms, self.last_ms, self.deadline_ms, self.random = first_ms, last_ms, deadline_ms, random
        self.warnings = warnings or RetryWarnings()

    def backoff(self) -> Backoff:
        return Backoff(self.first_ms, self.last_ms, self.random)

    def loop(self, what: str) -> RetryLoop:
        """For a background task; `what` describes it in warnings."""
        return RetryLoop(self, what)

    async def run(
        self, attempt: Callable[[], Awaitable[T]], *, deadline_ms: float | None = None, what: str = "the call"
    ) -> T:
        """Call `attempt` until it returns, raises something that is not retriable, or the deadline ends.

        At the deadline it raises a RetriableError with the time and the last error; an attempt that is
        still under way is cancelled.
        """
        limit_ms = self.deadline_ms if deadline_ms is None else deadline_ms
        backoff = self.backoff()
        last: RetriableError | None = None
        since = anyio.current_time()
        ends = since + limit_ms / 1000
        with anyio.CancelScope(deadline=ends):
            while True:
                try:
                    return await attempt()
                except RetriableError as error:
                    last = error
                    self.warnings.failed(what, since, error, ends)
                await backoff.pause()
        if last is None:
            raise RetriableError(f"{what} got no response within {limit_ms / 1000:g} s")
        raise gave_up(last, what, limit_ms / 1000)


def gave_up(last: KafkaError, what: str, seconds: float) -> RetriableError:
    """The error at a deadline, with the last error."""
    error = RetriableError(
        f"gave up on {what} after {seconds:g} s; last: {last.args[0]}", code=last.code, api=last.api, node=last.node
    )
    error.__cause__ = last
    return error
