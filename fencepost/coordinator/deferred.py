"""A reply that comes later: a coordinator returns it if another request has to come first."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import trio

from fencepost.coordinator.ports import Ticket
from fencepost.protocol.errors import ErrorCode

ReplyT = TypeVar("ReplyT")
OtherT = TypeVar("OtherT")


class Deferred(Generic[ReplyT]):
    """A reply that another request completes, and that may have to wait for the disk after that.

    The receiver awaits `wait`; or it calls `then`, and once it is woken, `now` or `wait`. A receiver that gives up
    before the reply is complete calls `abandon`.
    """

    __slots__ = ("_convert", "_depends_on", "_reply", "_wake", "is_complete")

    def __init__(self) -> None:
        self.is_complete = False
        self._reply: Any = None
        self._depends_on: Ticket | None = None
        self._wake: Callable[[], None] | None = None
        self._convert: Callable[[Any], ReplyT] | None = None

    def complete(self, reply: Any, depends_on: Ticket | None = None) -> None:
        """Set the reply, which may be sent once `depends_on` is durable. Only the first call has an effect."""
        if not self.is_complete:
            self.is_complete = True
            self._reply, self._depends_on = reply, depends_on
            if self._wake is not None:
                self._wake()

    def map(self, convert: Callable[[ReplyT], OtherT]) -> "Deferred[OtherT]":
        """Return this Deferred itself; `now` and `wait` convert the reply from now on. Call it at most once."""
        assert self._convert is None
        self._convert = convert  # type: ignore[assignment]
        return self  # type: ignore[return-value]

    def then(self, wake: Callable[[], None]) -> None:
        """Call `wake` once there is a reply. It runs inside the request that completes it and must handle none."""
        self._wake = wake
        if self.is_complete:
            wake()

    @property
    def is_sendable(self) -> bool:
        """Whether the reply is complete and everything it rests on is durable."""
        return self.is_complete and (self._depends_on is None or self._depends_on.is_durable)

    def now(self) -> ReplyT:
        """The reply; call it only if the reply `is_sendable`."""
        reply: ReplyT = self._reply if self._convert is None else self._convert(self._reply)
        return reply

    async def wait(self) -> ReplyT:
        """The reply, once it is complete and may be sent."""
        if not self.is_complete:
            event = trio.Event()
            self.then(event.set)
            try:
                await event.wait()
            finally:
                if not self.is_complete:
                    self.abandon()
        if self._depends_on is not None and (error := await self.settled(self._depends_on)):
            self._reply = self.refusal(error)
        return self.now()

    async def settled(self, ticket: Ticket) -> ErrorCode:
        raise NotImplementedError

    def refusal(self, error: ErrorCode) -> Any:
        raise NotImplementedError

    def abandon(self) -> None:
        """Note that the receiver no longer waits."""
