"""A request that was handed to a connection, and its answer."""

import contextlib
from typing import TYPE_CHECKING, Any

import trio

from fencepost.client.core.throttle import pause_ms
from fencepost.client.errors import ConnectionLost, KafkaError
from fencepost.protocol.registry import Api
from fencepost.protocol.schema import DecodeError

if TYPE_CHECKING:
    from fencepost.client.connection import Connection


class Pending:
    """A request that was handed to the socket and is not answered yet."""

    __slots__ = ("_abandoned", "_answered", "_connection", "_frame", "_lost", "api", "sent", "version")

    def __init__(self, connection: "Connection", api: Api, version: int) -> None:
        self._connection = connection
        self.api = api
        self.version = version
        self._answered = trio.Event()
        self._abandoned = False
        self._frame: tuple[memoryview, int] | None = None
        self._lost: KafkaError | None = None
        self.sent = True
        """False while the connection keeps the request back: it can not have reached the broker."""

    def arrive(self, frame: memoryview, body_start: int) -> None:
        """The reader found the answer."""
        self._frame = (frame, body_start)
        self._answered.set()
        if self._abandoned:
            with contextlib.suppress(KafkaError):  # nobody waits for it but the connection, which is closed by that
                self._decoded(frame, body_start)

    def lose(self, why: str, cause: KafkaError | None) -> None:
        """The connection ended first; `cause` if that is something which another attempt would not change."""
        self._lost = cause or ConnectionLost(why, sent=self.sent, api=self.api.name, node=self._connection.node)
        self._answered.set()

    async def frame(self, timeout_s: float) -> tuple[memoryview, int]:
        """The answer as bytes, and where its body begins.

        Raises ConnectionLost (with `sent`) when the connection ends first or `timeout_s` passes; the latter closes
        the connection, because whatever is behind the missing answer would be late, too. Time in which the broker had
        us wait (its quota, KIP-219) does not count. Raises AuthenticationError when that ended the connection.
        """
        began = trio.current_time()
        while not self._answered.is_set():
            ends = max(began, self._connection.quiet_until) + timeout_s
            if ends <= trio.current_time():
                break
            with trio.move_on_at(ends):
                await self._answered.wait()
        if self._lost is not None:
            raise self._lost
        if self._frame is None:
            why = f"no answer within {timeout_s:g} s"
            self._connection.close(why)
            raise ConnectionLost(why, sent=self.sent, api=self.api.name, node=self._connection.node)
        return self._frame

    async def wait(self, timeout_s: float) -> Any:
        """The decoded answer; raises as `frame` does, and KafkaError where the bytes make no sense."""
        try:
            frame, start = await self.frame(timeout_s)
        except trio.Cancelled:
            self._abandoned = True
            raise
        return self._decoded(frame, start)

    def _decoded(self, frame: memoryview, start: int) -> Any:
        """The answer, whose throttle time the connection obeys. Raises KafkaError."""
        try:
            answer = self.api.response.decode(frame, self.version, start)
        except DecodeError as wrong:
            self._connection.close(f"an answer that can not be read: {wrong}")
            raise KafkaError(
                f"the answer can not be read: {wrong}", api=self.api.name, node=self._connection.node
            ) from wrong
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._connection.rest(pause_ms(self.api.key, self.version, throttle_ms) / 1000)
        return answer
