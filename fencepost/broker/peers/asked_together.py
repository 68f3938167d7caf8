"""Questions to another broker that travel together: one request is under way, and the next has all that came meanwhile.

Kafka's AddPartitionsToTxnManager does the same, with one queue for each broker.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import trio

from fencepost.broker.peers.peer import PeerUnavailable

QuestionT = TypeVar("QuestionT")
AnswerT = TypeVar("AnswerT")


@dataclass(slots=True, eq=False)
class _Waiting(Generic[QuestionT, AnswerT]):
    question: QuestionT
    answer: AnswerT | None = None
    failure: PeerUnavailable | None = None
    woken: trio.Event = field(default_factory=trio.Event)
    """Set with the answer or the failure, or without: then it is this one's turn to send for all that wait."""

    @property
    def is_over(self) -> bool:
        return self.answer is not None or self.failure is not None


class AskedTogether(Generic[QuestionT, AnswerT]):
    """The questions to one broker. It has no task: one of those that wait sends for all of them."""

    def __init__(self, send: Callable[[list[QuestionT]], Awaitable[list[AnswerT]]]) -> None:
        """`send` returns an answer to each of the questions, or raises PeerUnavailable. It may get them again."""
        self._send = send
        self._waiting: list[_Waiting[QuestionT, AnswerT]] = []
        self._is_sending = False

    async def ask(self, question: QuestionT) -> AnswerT:
        """The answer. Raises PeerUnavailable."""
        one: _Waiting[QuestionT, AnswerT] = _Waiting(question)  # with types in brackets it takes ten times as long
        self._waiting.append(one)
        if self._is_sending:
            try:
                await one.woken.wait()
            except trio.Cancelled:
                one.failure = PeerUnavailable("nothing waits for the answer any more")
                if one in self._waiting:
                    self._waiting.remove(one)
                    if one.woken.is_set():  # at the same moment: it was its turn
                        self._wake_next()
                raise
        if not one.is_over:
            await self._send_all()
        if one.failure is not None:
            raise one.failure
        assert one.answer is not None, "it is over"
        return one.answer

    async def _send_all(self) -> None:
        self._is_sending = True
        sent, self._waiting = self._waiting, []
        try:
            answers = await self._send([each.question for each in sent])
            for each, answer in zip(sent, answers, strict=True):
                each.answer = answer
        except PeerUnavailable as error:
            for each in sent:
                each.failure = error
        except BaseException:  # cancelled, since the client of the first one has gone: the next one sends again
            self._waiting[:0] = [each for each in sent[1:] if not each.is_over]
            sent = []
            raise
        finally:
            for each in sent:
                each.woken.set()
            self._wake_next()

    def _wake_next(self) -> None:
        """Have the first of those that wait send for all of them."""
        self._is_sending = bool(self._waiting)
        if self._waiting:
            self._waiting[0].woken.set()
