"""Answers that are brought about by others: a Join by the other members, a Sync by the leader."""

from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, Generic, Protocol, TypeVar

from fencepost.broker.network.answers import Answer, answer_of
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

    def parked(self, api: Api, version: int, correlation_id: int, began: float) -> "Parked[ReplyT]":
        """The request as one that its connection waits for."""
        return Parked(
            self.asked,
            api.key,
            began,
            _General(api, version, self.respond),
            correlation_id.to_bytes(4, "big", signed=True),
        )


class Answers(Protocol):
    """Who knows how to put a request's answer together."""

    def answer_to(self, correlation_id: bytes, reply: Any) -> Answer | bytes:
        """The answer to the request of that correlation id; its bytes, where it waits for nothing and is small."""
        ...


class _General:
    """Whatever the request is."""

    __slots__ = ("_api", "_respond", "_version")

    def __init__(self, api: Api, version: int, respond: Callable[[Any], Any]) -> None:
        self._api = api
        self._version = version
        self._respond = respond

    def answer_to(self, correlation_id: bytes, reply: Any) -> Answer:
        number = int.from_bytes(correlation_id, "big", signed=True)
        return answer_of(self._api, self._version, number, self._respond(reply))


class Parked(Generic[ReplyT]):
    """A request of a connection that another one's turn answers.

    Its connection calls `then`, later `answer` and, where that is None, awaits `settled`; or it awaits `wait` alone.
    Who gives up in between calls `leave`.
    """

    __slots__ = ("_answers", "_correlation_id", "api_key", "asked", "began")

    def __init__(
        self, asked: Asked[ReplyT], api_key: int, began: float, answers: Answers, correlation_id: bytes
    ) -> None:
        self.asked = asked
        self.api_key = api_key
        self.began = began
        """By the broker's monotonic clock."""
        self._answers = answers
        self._correlation_id = correlation_id

    def then(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when the answer is known: in the middle of another request, so it must not handle one."""
        self.asked.then(wake)

    def answer(self) -> Answer | bytes | None:
        """The answer; None where it is not known yet, or may not leave yet."""
        reply = self.asked.now()
        return None if reply is None else self._answers.answer_to(self._correlation_id, reply)

    async def settled(self) -> Answer | bytes:
        """The answer, whose content is known, once it may leave."""
        return self._answers.answer_to(self._correlation_id, await self.asked.settled())

    async def wait(self) -> Answer | bytes:
        """The answer, once it is known and may leave."""
        return self._answers.answer_to(self._correlation_id, await answered(self.asked))

    def leave(self) -> None:
        """Nobody waits for it any more."""
        self.asked.leave()


def later(asked: ReplyT | Asked[ReplyT] | Coroutine[Any, Any, ReplyT], respond: Callable[[ReplyT], Any]) -> Any:
    """The response to what a coordinator was asked: at once if its reply is there, else a Later or a coroutine."""
    if isinstance(asked, Asked):
        return Later(asked, respond)
    if isinstance(asked, CoroutineType):
        return _awaited(asked, respond)
    return respond(asked)  # type: ignore[arg-type]


async def _awaited(asked: Coroutine[Any, Any, ReplyT], respond: Callable[[ReplyT], Any]) -> Any:
    return respond(await asked)
