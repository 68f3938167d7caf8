"""Questions that travel together: one request is under way, and the next has all that came meanwhile.

Nothing waits for ever, whatever is cancelled (Kafka's AddPartitionsToTxnManager).
"""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fencepost.broker.peers.asked_together import AskedTogether
from fencepost.broker.peers.peer import PeerUnavailable

pytestmark = pytest.mark.timeout(30)


class Other:
    """Another broker: it answers a question with its double, when it is let."""

    def __init__(self) -> None:
        self.requests: list[list[int]] = []
        self.go = trio.Semaphore(0)
        self.is_down = False

    async def __call__(self, questions: list[int]) -> list[int]:
        self.requests.append(questions)
        await self.go.acquire()
        if self.is_down:
            raise PeerUnavailable("it is down")
        return [2 * one for one in questions]


class Asking:
    """Clients of which each has asked one question."""

    def __init__(self, other: Other, nursery: trio.Nursery) -> None:
        self._together = AskedTogether[int, int](other)
        self._nursery = nursery
        self.answers: dict[int, int | str] = {}

    async def ask(self, *questions: int) -> list[trio.CancelScope]:
        """Ask, one after the other; returns what ends each client."""
        scopes = [trio.CancelScope() for _ in questions]
        for scope, question in zip(scopes, questions, strict=True):
            self._nursery.start_soon(self._ask, scope, question)
            await wait_all_tasks_blocked()
        return scopes

    async def _ask(self, scope: trio.CancelScope, question: int) -> None:
        with scope:
            try:
                self.answers[question] = await self._together.ask(question)
            except PeerUnavailable as error:
                self.answers[question] = str(error)


@pytest.fixture
def other() -> Other:
    return Other()


@pytest.fixture
def asking(other: Other, nursery: trio.Nursery) -> Asking:
    return Asking(other, nursery)


def released(other: Other) -> Callable[[], Awaitable[None]]:
    async def release() -> None:
        other.go.release()
        await wait_all_tasks_blocked()

    return release


async def test_what_came_meanwhile_is_in_the_next_request(other: Other, asking: Asking) -> None:
    """AddPartitionsToTxnManager.generateRequests: one request to a broker in flight, then one with all that wait."""
    release = released(other)
    await asking.ask(1, 2, 3)
    assert other.requests == [[1]]
    await release()
    assert (other.requests, asking.answers) == ([[1], [2, 3]], {1: 2})
    await asking.ask(4)
    await release()
    await release()
    assert other.requests == [[1], [2, 3], [4]]
    assert asking.answers == {1: 2, 2: 4, 3: 6, 4: 8}
    await asking.ask(5)
    assert other.requests[-1] == [5]
    await release()


async def test_all_questions_of_a_request_fail_with_it(other: Other, asking: Asking) -> None:
    """AddPartitionsToTxnManager's handler: an error of the connection is the answer to each transaction."""
    release = released(other)
    await asking.ask(1, 2, 3)
    await release()
    other.is_down = True
    await release()
    assert asking.answers == {1: 2, 2: "it is down", 3: "it is down"}
    other.is_down = False
    await asking.ask(4)
    await release()
    assert asking.answers[4] == 8


async def test_questions_go_on_without_the_client_that_sent_them(other: Other, asking: Asking) -> None:
    release = released(other)
    scopes = await asking.ask(1, 2, 3, 4)
    await release()
    assert other.requests[-1] == [2, 3, 4]
    scopes[2].cancel()  # its answer is under way
    await wait_all_tasks_blocked()
    scopes[1].cancel()  # it waits for the answers of all
    await wait_all_tasks_blocked()
    assert other.requests[-1] == [4]
    await release()
    assert asking.answers == {1: 2, 4: 8}


async def test_a_client_that_goes_before_its_request_is_left_out(other: Other, asking: Asking) -> None:
    release = released(other)
    _, second, _ = await asking.ask(1, 2, 3)
    second.cancel()
    await wait_all_tasks_blocked()
    await release()
    await release()
    assert other.requests == [[1], [3]]
    assert asking.answers == {1: 2, 3: 6}


@pytest.mark.parametrize("cancelled", [1, 2, 3])
async def test_one_that_is_cancelled_as_its_turn_comes_stops_no_other(cancelled: int) -> None:
    """The tasks of one moment run in any order: the one to send next may end before it knows of its turn."""
    for _ in range(40):
        other = Other()
        async with trio.open_nursery() as nursery:
            asking = Asking(other, nursery)
            scopes = await asking.ask(1, 2, 3)
            scopes[cancelled - 1].cancel()
            for _ in range(4):
                other.go.release()
            await wait_all_tasks_blocked()
            await asking.ask(4)
        assert {1, 2, 3, 4} - {cancelled} <= asking.answers.keys()
