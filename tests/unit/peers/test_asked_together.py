"""Questions that travel together: nothing waits for ever, whatever is cancelled (Kafka's AddPartitionsToTxnManager)."""

import pytest
import trio
import trio.testing

from fencepost.broker.peers.asked_together import AskedTogether
from fencepost.broker.peers.peer import PeerUnavailable

pytestmark = pytest.mark.timeout(30)


class Peer:
    """Answers each question with itself, once it is let go."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.may_answer = trio.Event()
        self.is_down = False
        self.together = AskedTogether(self.send)
        self.answers: list[int] = []

    async def send(self, questions: list[int]) -> list[int]:
        self.sent.append(questions)
        await self.may_answer.wait()
        if self.is_down:
            raise PeerUnavailable("down")
        return questions

    async def ask(self, question: int, scope: trio.CancelScope | None = None) -> None:
        with scope or trio.CancelScope():
            self.answers.append(await self.together.ask(question))


async def started(peer: Peer, nursery: trio.Nursery, scopes: dict[int, trio.CancelScope], count: int) -> None:
    for question in range(count):
        nursery.start_soon(peer.ask, question, scopes.get(question))
        await trio.testing.wait_all_tasks_blocked()


async def test_what_comes_meanwhile_is_in_the_next_request() -> None:
    peer = Peer()
    async with trio.open_nursery() as nursery:
        await started(peer, nursery, {}, 3)
        peer.may_answer.set()
    assert peer.sent == [[0], [1, 2]]
    assert sorted(peer.answers) == [0, 1, 2]


async def test_all_fail_with_the_request_that_has_them() -> None:
    peer = Peer()
    peer.is_down = True
    peer.may_answer.set()
    with pytest.raises(PeerUnavailable):
        await peer.together.ask(1)
    peer.is_down = False
    assert await peer.together.ask(2) == 2


@pytest.mark.parametrize("cancelled", [0, 1, 2])
async def test_a_question_that_is_cancelled_stops_no_other(cancelled: int) -> None:
    peer, scope = Peer(), trio.CancelScope()
    async with trio.open_nursery() as nursery:
        await started(peer, nursery, {cancelled: scope}, 3)
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        peer.may_answer.set()
    assert sorted(peer.answers) == sorted({0, 1, 2} - {cancelled})
    assert await peer.together.ask(3) == 3


@pytest.mark.parametrize("cancelled", [0, 1, 2])
async def test_one_that_is_cancelled_as_its_turn_comes_stops_no_other(cancelled: int) -> None:
    """The tasks of one moment run in any order: the one to send next may end before it knows of its turn."""
    for _ in range(40):
        peer, scope = Peer(), trio.CancelScope()
        async with trio.open_nursery() as nursery:
            await started(peer, nursery, {cancelled: scope}, 3)
            scope.cancel()
            peer.may_answer.set()
        assert {0, 1, 2} - {cancelled} <= set(peer.answers)
        assert await peer.together.ask(3) == 3
