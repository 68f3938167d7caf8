"""A request on a connection, and its response."""

import contextlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import anyio

from fencepost.client.core.throttle import pause_ms
from fencepost.client.errors import ConnectionLostError, KafkaError
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import DecodeError, ResponseValue
from fencepost.protocol.session import Response, Sent, decode

if TYPE_CHECKING:
    from fencepost.client.network.connection import Connection


R = TypeVar("R", bound=ResponseValue)


@dataclass(slots=True, eq=False, repr=False)
class Pending(Sent, Generic[R]):
    """A request that was sent and has no response yet."""

    connection: "Connection"
    _answered: anyio.Event = field(default_factory=anyio.Event)
    _abandoned: bool = False
    _began: float = 0.0
    _timeout_s: float = math.inf
    _frame: tuple[memoryview, int] | None = None
    _lost: KafkaError | None = None
    sent: bool = True
    """False while the connection holds the request back: it cannot have reached the broker."""

    def arrive(self, response: Response[Any]) -> None:
        # Not the response itself: it names this request, and a frame in a circle would be freed late.
        self._frame = response.frame, response.start
        self._answered.set()
        if self._abandoned:
            with contextlib.suppress(KafkaError):  # no task waits for it, and an error has closed the connection
                self._decoded(*self._frame)

    def lose(self, reason: str, cause: KafkaError | None) -> None:
        """The connection ended first; `cause` if another attempt would fail in the same way."""
        self._lost = cause or ConnectionLostError(reason, sent=self.sent, api=self.api.name, node=self.connection.node)
        self._answered.set()

    async def frame(self, timeout_s: float) -> tuple[memoryview, int]:
        """The response as bytes, and where its body begins.

        Raises ConnectionLostError (with `sent`) when the connection ends first or `timeout_s` passes. The latter closes
        the connection, because responses behind the missing one would be late, too. Time in which the broker throttled
        this client (KIP-219) does not count. Raises AuthenticationError when that ended the connection.
        """
        self._began, self._timeout_s = anyio.current_time(), timeout_s
        while not self._answered.is_set():
            ends = self._ends()
            if ends <= anyio.current_time():
                break
            with anyio.CancelScope(deadline=ends):
                await self._answered.wait()
        if self._lost is not None:
            raise self._lost
        if self._frame is None:
            reason = f"no response within {timeout_s:g} s"
            self.connection.close(reason)
            raise ConnectionLostError(reason, sent=self.sent, api=self.api.name, node=self.connection.node)
        return self._frame

    def _ends(self) -> float:
        return max(self._began, self.connection.throttled_until) + self._timeout_s

    def overdue(self, now: float) -> bool:
        """Whether its caller was cancelled and would have timed out by now."""
        return self._abandoned and self._ends() <= now

    async def wait(self, timeout_s: float) -> R:
        """The decoded response. Raises as `frame` does, and KafkaError if it cannot be decoded."""
        try:
            frame, start = await self.frame(timeout_s)
        except anyio.get_cancelled_exc_class():
            self._abandoned = True
            raise
        return self._decoded(frame, start)

    def _decoded(self, frame: memoryview, start: int) -> R:
        """The response; the connection obeys its throttle time. Raises KafkaError."""
        try:
            response = cast("R", decode(self, frame, start))
        except DecodeError as wrong:
            self.connection.close(f"a response that cannot be read: {wrong}")
            known = "the response cannot be read"
            what = "this is not a Kafka broker" if self.api.key == ApiKey.API_VERSIONS else known
            raise KafkaError(f"{what}: {wrong}", api=self.api.name, node=self.connection.node) from wrong
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.connection.rest(pause_ms(self.api.key, self.version, throttle_ms) / 1000)
        return response
