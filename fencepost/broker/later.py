"""Answers that are brought about by others: a Join by the other members, a Sync by the leader."""

from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, Generic, TypeVar

from fencepost.coordinator.group.parking import Asked
from fencepost.coordinator.group.service import answered

ReplyT = TypeVar("ReplyT")


class Later(Generic[ReplyT]):
    """What a handler returns where its answer comes from another request's turn, so that no task has to wait for it.

    Who gets one either awaits `wait`; or calls `then`, later `now` and, where that is None, awaits `settled`. Who gives
    up in between calls `leave`.
    """

    __slots__ = ("_asked", "_respond")

    def __init__(self, asked: Asked[ReplyT], respond: Callable[[ReplyT], Any]) -> None:
        self._asked = asked
        self._respond = respond

    async def wait(self) -> Any:
        """The response, once it may leave."""
        return self._respond(await answered(self._asked))

    def then(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when the answer is known: in the middle of another request, so it must not handle one."""
        self._asked.then(wake)

    def now(self) -> Any | None:
        """The response; None where it is not known yet, or may not leave yet."""
        reply = self._asked.now()
        return None if reply is None else self._respond(reply)

    async def settled(self) -> Any:
        """The response, whose content is known, once it may leave."""
        return self._respond(await self._asked.settled())

    def leave(self) -> None:
        """Nobody waits for it any more."""
        self._asked.leave()


def later(asked: ReplyT | Asked[ReplyT] | Coroutine[Any, Any, ReplyT], respond: Callable[[ReplyT], Any]) -> Any:
    """The response to what a coordinator was asked: at once if its reply is there, else a Later or a coroutine."""
    if isinstance(asked, Asked):
        return Later(asked, respond)
    if isinstance(asked, CoroutineType):
        return _awaited(asked, respond)
    return respond(asked)  # type: ignore[arg-type]


async def _awaited(asked: Coroutine[Any, Any, ReplyT], respond: Callable[[ReplyT], Any]) -> Any:
    return respond(await asked)
