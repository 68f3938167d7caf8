"""Responses leave in order, when what they acknowledge is durable, as far as the socket takes them."""

import socket
from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from fencepost.broker.byte_budget import ByteBudget
from fencepost.broker.network.dispatch import Dispatch
from fencepost.broker.network.reply import Durable, Encoded
from fencepost.broker.network.response_queue import FLUSH_BYTES, FLUSH_RESPONSES, ResponseQueue
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_response_header
from fencepost.protocol.messages.api12_heartbeat import HeartbeatResponse
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import EncodeError

HEARTBEAT, VERSION = API_BY_KEY[12], 4
ROUTE = Dispatch().route(12, VERSION)


class Log:
    """A log that becomes durable, or is lost, when a test says so."""

    durable_below = 0
    commits_remotely = False


class Commit:
    """As much of the flusher as a queue asks of."""

    def __init__(self) -> None:
        self.lost: set[Any] = set()
        self.asked: list[list[tuple[Any, int]]] = []
        """What was waited for: each ticket's log and end offset."""

    def is_settled(self, ticket: Any) -> bool:
        return bool(ticket.log.durable_below >= ticket.end_offset)

    def settle_inline(self, requester: object, logs: Collection[Any]) -> bool:
        return False

    async def wait_all(self, tickets: Collection[Any]) -> bool:
        self.asked.append([(ticket.log, ticket.end_offset) for ticket in tickets])
        await trio.lowlevel.checkpoint()
        return bool(self.lost)


class Acknowledgement(Durable):
    def __init__(self, lost: set[Any], ticket: Any) -> None:
        super().__init__(HeartbeatResponse(), [ticket])
        self.lost = lost

    def revise(self) -> None:
        if any(ticket.log in self.lost for ticket in self.tickets):
            self.response = HeartbeatResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR)


class Side:
    """One end of a connection with its queue, and the client's end."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.ours = ours
        self.commit = Commit()
        self.node: Any = SimpleNamespace(
            response_bytes=ByteBudget(-1), flusher=self.commit, place=SimpleNamespace(answers_hold=True)
        )
        self.progress: list[None] = []
        self.queue = ResponseQueue(self.node, ours)

    async def send(self) -> None:
        await self.queue.send(lambda: self.progress.append(None))

    def put(self, number: int, reply: Any = None) -> bool:
        return self.queue.put(ROUTE, number, HeartbeatResponse() if reply is None else reply)

    def put_waiting(self, number: int, log: Log, end_offset: int) -> None:
        ticket = SimpleNamespace(log=log, end_offset=end_offset)
        self.put(number, Acknowledgement(self.commit.lost, ticket))

    def received(self) -> list[tuple[int, int]]:
        """Correlation id and error of what has arrived."""
        self.theirs.setblocking(False)
        try:
            data = self.theirs.recv(1 << 20)
        except BlockingIOError:
            return []
        found = []
        while data:
            size = int.from_bytes(data[:4], "big")
            frame, data = data[4 : 4 + size], data[4 + size :]
            number, start = read_response_header(HEARTBEAT, VERSION, frame)
            found.append((number, HEARTBEAT.response.decode(frame, VERSION, start).error_code))
        return found


@pytest.fixture
def side() -> Iterator[Side]:
    side = Side()
    with side.ours, side.theirs:
        yield side


def test_responses_that_wait_for_nothing_leave_in_one_send(side: Side) -> None:
    for number in (1, 2, 3):
        side.put(number)
    assert side.queue.count == 3
    assert side.queue.try_send()
    assert side.received() == [(1, 0), (2, 0), (3, 0)]
    assert side.queue.count == 0


async def test_a_response_waits_for_those_before_it(side: Side) -> None:
    log = Log()
    side.put_waiting(1, log, 5)
    side.put(2)
    side.put_waiting(3, log, 7)
    assert not side.queue.try_send()
    assert side.received() == []
    log.durable_below = 7
    assert side.queue.try_send()
    assert side.received() == [(1, 0), (2, 0), (3, 0)]
    assert side.commit.asked == []


async def test_one_wait_covers_every_ticket(side: Side) -> None:
    """Not only the newest of each log: one that binds offsets late may refuse an older append alone."""
    one, other = Log(), Log()
    side.put_waiting(1, one, 5)
    side.put_waiting(2, one, 3)
    side.put_waiting(3, other, 1)
    await side.send()
    assert side.commit.asked == [[(one, 5), (one, 3), (other, 1)]]
    assert side.received() == [(1, 0), (2, 0), (3, 0)]


async def test_a_log_that_is_lost_takes_back_its_acknowledgements_and_no_others(side: Side) -> None:
    """No acknowledgement of what was not durable when its log went offline."""
    lost, sound = Log(), Log()
    side.commit.lost = {lost}
    side.put(1)
    side.put_waiting(2, lost, 5)
    side.put_waiting(3, sound, 5)
    side.put_waiting(4, lost, 6)
    side.put(5)
    await side.send()
    gone = ErrorCode.KAFKA_STORAGE_ERROR
    assert side.received() == [(1, 0), (2, gone), (3, 0), (4, gone), (5, 0)]
    side.put(6)
    assert side.queue.try_send()
    assert side.received() == [(6, 0)]


async def test_nothing_is_sent_once_the_database_has_lost_commits(side: Side) -> None:
    """One wait covers a response that was durable and another one: when its commit finds the loss, both say nothing."""
    log = Log()
    side.put_waiting(1, log, 5)
    side.node.place.answers_hold = False
    with pytest.raises(OSError, match="the database lost commits"):
        await side.send()
    side.put(2)
    with pytest.raises(OSError, match="the database lost commits"):
        side.queue.try_send()
    assert side.received() == []


async def test_what_the_socket_does_not_take_is_sent_later_and_in_order(side: Side) -> None:
    bodies = [bytes([number]) * 15_000 for number in range(50)]
    for number, body in enumerate(bodies):
        side.put(number, Encoded([body]))
    assert not side.queue.try_send()
    received = b""
    expected = sum(len(body) + 9 for body in bodies)
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(side.send)
            while len(received) < expected:
                await trio.lowlevel.wait_readable(side.theirs)
                received += side.theirs.recv(1 << 20)
    assert received == b"".join(
        (len(body) + 5).to_bytes(4, "big") + number.to_bytes(4, "big") + b"\0" + body
        for number, body in enumerate(bodies)
    )
    assert side.progress
    assert side.queue.count == 0


def test_a_queue_is_full_by_bytes_or_by_count(side: Side) -> None:
    assert side.put(0, Encoded([bytes(FLUSH_BYTES)]))
    other = Side()
    with other.ours, other.theirs:
        full = [other.put(number) for number in range(FLUSH_RESPONSES)]
        assert full == [False] * (FLUSH_RESPONSES - 1) + [True]


def test_a_response_that_cannot_be_encoded_names_its_field(side: Side) -> None:
    with pytest.raises(EncodeError, match="error_code"):
        side.put(1, HeartbeatResponse(error_code=1 << 20))
    assert side.queue.count == 0
