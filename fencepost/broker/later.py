"""Answers that are brought about by others: a Join by the other members, a Sync by the leader."""

from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, Generic, TypeVar

from fencepost.broker.answers import Answer, answer_of
from fencepost.coordinator.group.parking import Asked
from fencepost.coordinator.group.service import answered
from fencepost.protocol.registry import Api

ReplyT = TypeVar("ReplyT")


class Later(Generic[ReplyT]):
    """What a handler returns where its answer comes from another request's turn, so that no task has to wait for it.

    Who gets one either awaits `wait`, or makes a `Parked` of it.
    """

    __slots__ = ("asked", "respond")

    def __init__(self, asked: Asked[ReplyT], respond: Callable[[ReplyT], Any]) -> None:
        self.asked = asked
        self.respond = respond

    async def wait(self) -> Any:
        """The response, once it may leave."""
        return self.respond(await answered(self.asked))


class Parked(Generic[ReplyT]):
    """A request of a connection that another one's turn answers.

    Its connection calls `then`, later `answer` and, where that is None, awaits `settled`; or it awaits `wait` alone.
    Who gives up in between calls `leave`.
    """

    __slots__ = ("_correlation_id", "_respond", "_version", "api", "asked", "began")

    def __init__(
        self,
        asked: Asked[ReplyT],
        respond: Callable[[ReplyT], Any],
        api: Api,
        version: int,
        correlation_id: int,
        began: float,
    ) -> None:
        self.asked = asked
        self.api = api
        self.began = began
        """By the broker's monotonic clock."""
        self._respond = respond
        self._version = version
        self._correlation_id = correlation_id

    def then(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when the answer is known: in the middle of another request, so it must not handle one."""
        self.asked.then(wake)

    def answer(self) -> Answer | None:
        """The answer; None where it is not known yet, or may not leave yet."""
        reply = self.asked.now()
        return None if reply is None else self._answer(reply)

    async def settled(self) -> Answer:
        """The answer, whose content is known, once it may leave."""
        return self._answer(await self.asked.settled())

    async def wait(self) -> Answer:
        """The answer, once it is known and may leave."""
        return self._answer(await answered(self.asked))

    def leave(self) -> None:
        """Nobody waits for it any more."""
        self.asked.leave()

    def _answer(self, reply: ReplyT) -> Answer:
        return answer_of(self.api, self._version, self._correlation_id, self._respond(reply))


def later(asked: ReplyT | Asked[ReplyT] | Coroutine[Any, Any, ReplyT], respond: Callable[[ReplyT], Any]) -> Any:
    """The response to what a coordinator was asked: at once if its reply is there, else a Later or a coroutine."""
    if isinstance(asked, Asked):
        return Later(asked, respond)
    if isinstance(asked, CoroutineType):
        return _awaited(asked, respond)
    return respond(asked)  # type: ignore[arg-type]


async def _awaited(asked: Coroutine[Any, Any, ReplyT], respond: Callable[[ReplyT], Any]) -> Any:
    return respond(await asked)
