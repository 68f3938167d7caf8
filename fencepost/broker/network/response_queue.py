"""The output side of a connection: responses in order, what they wait for, and what the socket did not take."""

import socket
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.log.storage.store import FileRegion
from fencepost.broker.network.reply import Durable, Encoded, Response
from fencepost.broker.network.transmission import JOIN_BYTES_MAX, Rest, send_parts, start_sending
from fencepost.protocol.headers import write_response_header
from fencepost.protocol.registry import Api

if TYPE_CHECKING:
    from fencepost.broker.log.partition import PartitionLog
    from fencepost.broker.log.results import Ticket
    from fencepost.broker.node import Node

FLUSH_BYTES = 1 << 20
FLUSH_RESPONSES = 128
_LENGTH_BYTES = 4


class _Acknowledgement(NamedTuple):
    """A queued response that waits for logs: where its frame stands in the queue, and how to write it again."""

    start: int
    stop: int
    api: Api
    version: int
    correlation_id: int
    reply: Durable


class ResponseQueue:
    """Responses of one connection that have not left yet.

    It is bounded: whoever puts a response into it sends before anything else once it `is_full`, so it holds at most
    `FLUSH_BYTES` plus one response.
    """

    __slots__ = ("_acknowledgements", "_count", "_parts", "_rest", "_size_bytes", "_socket", "_unsettled")

    def __init__(self, node: "Node", sock: socket.socket) -> None:
        self._socket = sock
        self._parts: list[Any] = []
        """Frames as pieces to be sent in order: bytes-like objects and FileRegions."""
        self._count = 0
        self._size_bytes = 0
        self._acknowledgements: list[_Acknowledgement] = []
        self._unsettled = Unsettled(node)
        self._rest: Rest | None = None
        """What `try_send` began to send and `send` has to finish."""

    def __len__(self) -> int:
        """How many responses wait to be sent."""
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether nothing may be added before `send`."""
        return self._size_bytes >= FLUSH_BYTES or self._count >= FLUSH_RESPONSES

    def put(self, api: Api, version: int, correlation_id: int, reply: Response | Encoded | Durable) -> None:
        """Put a response behind those that wait to be sent."""
        if isinstance(reply, Durable):
            frame = _frame(api, version, correlation_id, reply.response)
            start = len(self._parts)
            self._acknowledgements.append(
                _Acknowledgement(start, start + len(frame), api, version, correlation_id, reply)
            )
            self._unsettled.add(reply.tickets)
        else:
            frame = _frame(api, version, correlation_id, reply)
        self._parts += frame
        self._count += 1
        self._size_bytes += sum(map(len, frame))

    def try_send(self) -> bool:
        """Send all responses if nothing has to be waited for; False: what is left of them is for `send`."""
        if self._acknowledgements:
            if not self._unsettled.is_settled():
                return False
            self._unsettled.clear()
            self._acknowledgements.clear()
        parts = self._parts
        if self._size_bytes > JOIN_BYTES_MAX or FileRegion in map(type, parts):
            self._clear()
            self._rest = start_sending(self._socket, parts)
            return self._rest is None
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return False
        if sent < len(data):
            self._parts, self._size_bytes = [memoryview(data)[sent:]], len(data) - sent
            return False
        self._clear()
        return True

    async def send(self, progress: Callable[[], None]) -> None:
        """Wait until the responses may leave, and send them all. Raises OSError.

        `progress` is called whenever some bytes may have left.
        """
        if self._rest is not None:
            rest, self._rest = self._rest, None
            await rest.finish(progress)
            return
        if self._acknowledgements:
            if await self._unsettled.wait():
                self._revise()
            self._acknowledgements.clear()
        parts = self._parts
        self._clear()
        await send_parts(self._socket, parts, progress)

    def _revise(self) -> None:
        """Encode the acknowledgements again: their tickets may say something else than before."""
        for start, stop, api, version, correlation_id, reply in reversed(self._acknowledgements):
            reply.revise()
            self._parts[start:stop] = _frame(api, version, correlation_id, reply.response)

    def _clear(self) -> None:
        self._parts, self._size_bytes, self._count = [], 0, 0


class Unsettled:
    """What the responses of one connection wait for: the newest ticket of each log."""

    __slots__ = ("_newest", "_node")

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._newest: dict[PartitionLog, Ticket] = {}

    def add(self, tickets: "Collection[Ticket]") -> None:
        """Wait for these, too."""
        for ticket in tickets:
            newest = self._newest.get(ticket.log)
            if newest is None or ticket.end_offset > newest.end_offset:
                self._newest[ticket.log] = ticket

    def is_settled(self) -> bool:
        """Whether all of it is settled; where only a brief flush is missing, it is done on the spot."""
        commit, newest = self._node.commit, self._newest
        if any(log.binds_late for log in newest):
            return False  # their responses are to be revised
        if all(map(commit.is_settled, newest.values())):
            return True
        return commit.settle_here(self, newest) and all(map(commit.is_settled, newest.values()))

    def clear(self) -> None:
        """Wait for nothing any more."""
        self._newest = {}

    async def wait(self) -> bool:
        """Return when all of it is settled or lost. True: responses may have changed, and are to be encoded again."""
        newest, self._newest = self._newest, {}
        return await self._node.commit_all(newest.values())


def _frame(api: Api, version: int, correlation_id: int, response: Response | Encoded) -> list[Any]:
    """A response's frame in pieces, its length in front."""
    parts = response.parts if isinstance(response, Encoded) else api.response.encode_parts(response, version)
    head = write_response_header(api, version, correlation_id)
    size = len(head) + sum(map(len, parts))
    return [size.to_bytes(_LENGTH_BYTES, "big") + head, *parts]
