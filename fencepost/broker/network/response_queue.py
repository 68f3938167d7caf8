"""The output side of a connection: responses in order, their tickets, and the bytes that the socket did not accept."""

import socket
import struct
from collections.abc import Callable
from typing import Any

from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.store import FileRegion
from fencepost.broker.network.dispatch import Route
from fencepost.broker.network.reply import Durable, Encoded, Response
from fencepost.broker.network.transmission import JOIN_BYTES_MAX, StartSending, Transmission, send_parts, start_sending
from fencepost.broker.ports import Broker

FLUSH_BYTES = 1 << 20
FLUSH_RESPONSES = 128
CORRELATION_ID_BYTES = 4
_HEAD = struct.Struct(">ii")


class ResponseQueue:
    """Responses of one connection that are not sent yet.

    It is bounded: when `put` returns True, the connection sends the queue first. So it holds at most `FLUSH_BYTES` plus
    one response.
    """

    __slots__ = (
        "_acknowledgements",
        "_held_bytes",
        "_node",
        "_parts",
        "_requester",
        "_size_bytes",
        "_socket",
        "_start_sending",
        "_unfinished",
        "count",
        "tickets",
    )

    def __init__(self, node: Broker, sock: socket.socket) -> None:
        self._node = node
        self._socket = sock
        self._start_sending: StartSending | None = None
        """None without TLS."""
        self._parts: list[Any] = []
        """Frames as pieces in the order of sending: bytes-like objects and FileRegions."""
        self.count = 0
        self._size_bytes = 0
        self._held_bytes = 0
        """Bytes of large responses in memory, which count in the broker's budget."""
        self._acknowledgements: list[tuple[int, int, Route, int, Durable]] = []
        """Responses that wait for tickets: their range in `_parts`, and what is needed to encode them again."""
        self.tickets: list[Ticket] = []
        self._requester = object()
        """Identifies this connection for the flusher, which keeps it longer than the connection may live."""
        self._unfinished: Transmission | None = None
        """What `try_send` began to send and `send` has to finish."""

    def encrypt(self, sock: socket.socket, start_sending: StartSending) -> None:
        """Send over TLS from now on, by `start_sending` and the socket that OpenSSL uses."""
        self._socket, self._start_sending = sock, start_sending

    def put(self, route: Route, correlation_id: int, reply: Response | Encoded | Durable) -> bool:
        """Append a response to the queue. Returns True if the queue is full and must be sent now."""
        if isinstance(reply, Durable):
            frame = _frame(route, correlation_id, reply.response)
            start = len(self._parts)
            self._acknowledgements.append((start, start + len(frame), route, correlation_id, reply))
            self.tickets += reply.tickets
        else:
            frame = _frame(route, correlation_id, reply)
        self._parts += frame
        self.count += 1
        size_bytes = sum(map(len, frame))
        self._size_bytes += size_bytes
        if size_bytes > JOIN_BYTES_MAX:
            held_bytes = sum(len(part) for part in frame if type(part) is not FileRegion)
            self._held_bytes += held_bytes
            self._node.response_bytes.take(held_bytes)
        return self._size_bytes >= FLUSH_BYTES or self.count >= FLUSH_RESPONSES

    def put_token(self, token: bytes) -> None:
        """Append bytes of SASL, which have no header."""
        self._parts += [len(token).to_bytes(4, "big"), token]
        self.count += 1
        self._size_bytes += 4 + len(token)

    def try_send(self) -> bool:
        """Send all responses if that needs no waiting. Returns False if `send` must send the rest. Raises OSError."""
        self._check()
        if self._acknowledgements:
            if not self._is_settled():
                return False
            self._acknowledgements, self.tickets = [], []
        parts = self._parts
        if self._start_sending is not None:
            self._clear()
            self._unfinished = self._start_sending(self._socket, parts)
            if self._unfinished is None:
                self.close()
            return self._unfinished is None
        if self._size_bytes > JOIN_BYTES_MAX or FileRegion in map(type, parts):
            self._clear()
            self._unfinished = start_sending(self._socket, parts)
            if self._unfinished is None:
                self.close()
            return self._unfinished is None
        data = b"".join(parts)
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
        """Wait for the tickets, and send all responses. Raises OSError.

        `progress` is called whenever some bytes may have been sent.
        """
        if self._unfinished is not None:
            unfinished, self._unfinished = self._unfinished, None
            await unfinished.finish(progress)
            self.close()
            return
        if self._acknowledgements:
            tickets, self.tickets = self.tickets, []
            if await self._node.flusher.wait_all(tickets):
                self._revise()
            self._acknowledgements = []
        self._check()
        parts = self._parts
        self._clear()
        await send_parts(self._socket, parts, progress, self._start_sending)
        self.close()

    def close(self) -> None:
        """All responses are sent, or the connection has ended: their memory is free."""
        if self._held_bytes:
            self._node.response_bytes.give(self._held_bytes)
            self._held_bytes = 0

    def _check(self) -> None:
        """Raise OSError, which ends the connection, if the database lost what the responses acknowledge.

        Some waited behind a commit that failed, and would acknowledge now what is known to be lost. Without an answer a
        client takes the outcome as unknown, as it is.
        """
        if not self._node.place.answers_hold:
            raise ConnectionAbortedError("the database lost commits, what is not sent yet may not be true any more")

    def _revise(self) -> None:
        for start, stop, route, correlation_id, reply in reversed(self._acknowledgements):
            reply.revise()
            self._parts[start:stop] = _frame(route, correlation_id, reply.response)

    def _is_settled(self) -> bool:
        """Whether every ticket is settled. If only a short flush is missing, it is done inline."""
        flusher = self._node.flusher
        for ticket in self.tickets:
            if ticket.log.commits_remotely or not flusher.is_settled(ticket):
                break
        else:
            return True
        if any(ticket.log.commits_remotely for ticket in self.tickets):
            return False  # their responses must be revised
        logs = {ticket.log: None for ticket in self.tickets}
        return flusher.settle_inline(self._requester, logs) and all(map(flusher.is_settled, self.tickets))

    def _clear(self) -> None:
        self._parts, self._size_bytes, self.count = [], 0, 0


def _frame(route: Route, correlation_id: int, response: Response | Encoded) -> list[Any]:
    """A response's frame in pieces, with its length first."""
    if isinstance(response, Encoded):
        parts: list[Any] = response.parts
    else:
        try:
            parts = route.encode(response)
        except Exception:  # noqa: BLE001 - `encode_parts` raises an error that names the field
            parts = route.api.response.encode_parts(response, route.version)
    end = route.header_end
    size = CORRELATION_ID_BYTES + len(end) + sum(map(len, parts))
    return [_HEAD.pack(size, correlation_id) + end + parts[0], *parts[1:]]
