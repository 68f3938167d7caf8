"""What arrives on one connection: how long a request takes, whether it waits for memory, and whether more follow."""

import socket

import trio

from fencepost.broker.byte_budget import ByteBudget
from fencepost.broker.network.frames import KEPT_BYTES, FrameBuffer
from fencepost.broker.network.response_queue import ResponseQueue
from fencepost.broker.ports import Broker


class PartialRequest:
    """What the sweep of the server learns about an unfinished request. Requests that arrive at once cost nothing."""

    __slots__ = ("_budget", "_frames", "_requests", "_since", "waits_for_room")

    def __init__(self, frames: FrameBuffer, budget: ByteBudget) -> None:
        self._frames = frames
        self._budget = budget
        self._requests = -1
        self._since = 0.0
        self.waits_for_room = False
        """The budget of request bytes is used up: the connection reads nothing."""

    def since(self, now: float, requests: int, idle: bool) -> float:
        """Since when the next request has been arriving, to the interval of the calls; `now` if none is.

        `requests` is how many arrived before; `idle` is whether the connection waits for input.
        """
        is_reading = idle or self.waits_for_room
        if not self._frames.pending_bytes or not is_reading or self._requests != requests:
            self._requests, self._since = requests, now
        return self._since

    @property
    def holds_memory(self) -> bool:
        """Whether a part of a large request is in memory, and the connection reads the rest."""
        return self._frames.pending_bytes > KEPT_BYTES and not self.waits_for_room

    async def wait_for_room(self, growth: int) -> None:
        """Wait until other connections have released memory for requests, and let the buffer grow by `growth` bytes."""
        self.waits_for_room = True
        try:
            await self._budget.take_later(growth)
        finally:
            self.waits_for_room = False
        self._frames.grow()


async def wait_readable_or_durable(broker: Broker, sock: socket.socket, responses: ResponseQueue) -> bool:
    """Wait until the client sends more, or the responses can be sent. Returns True if the client was first.

    A round of a cluster that puts an object waits for more bytes, and then for the object store: a connection that
    reads nothing meanwhile adds one request to each round, however many its client has sent. Returns False at once if
    the next round is full, or needs no object; logs in files never do, because a flush is short.
    """
    arrived = False

    async def wait_readable() -> None:
        nonlocal arrived
        await trio.lowlevel.wait_readable(sock)
        arrived = True
        nursery.cancel_scope.cancel()

    if not responses.tickets or not broker.flusher.wants_more:
        return False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_readable)
        await broker.flusher.wait_all(responses.tickets)
        nursery.cancel_scope.cancel()
    return arrived
