"""The output side of a connection: answers that wait for logs or for each other, and what the socket did not take."""

import socket
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from fencepost.broker.log.storage.store import FileRegion
from fencepost.broker.network.answers import Answer
from fencepost.broker.network.transmission import JOIN_BYTES_MAX, Rest, send_parts, start_sending

if TYPE_CHECKING:
    from fencepost.broker.log.partition import PartitionLog
    from fencepost.broker.log.results import Ticket
    from fencepost.broker.network.server import Server
    from fencepost.broker.node import Node

Unfinished = Coroutine[Any, Any, Any]
"""The rest of what a plain function began: to be awaited before anything else is done."""

OUTPUT_FLUSH_BYTES = 1 << 20
OUTPUT_FLUSH_ANSWERS = 128


class Outgoing:
    """The part of a connection that sends.

    What it holds is bounded by `OUTPUT_FLUSH_BYTES` plus one answer.
    """

    __slots__ = ("_node", "_out", "_out_bytes", "_rest", "_server", "_socket", "_waits", "last_active")

    def __init__(self, server: "Server", sock: socket.socket) -> None:
        self.last_active = server.now
        self._server = server
        self._node: Node = server.node
        self._socket = sock
        self._out: list[Answer] = []
        self._out_bytes = 0
        self._waits: dict[PartitionLog, Ticket] = {}
        self._rest: Rest | None = None
        """What `_flushed_at_once` began to send and `_flush` has to finish."""

    def _put(self, answer: Answer | bytes) -> Unfinished | None:
        """Put an answer behind those that wait to be sent; bytes, which rest on no log, leave at once where none do."""
        if isinstance(answer, Answer):
            return self._enqueue(answer)
        if not self._out:
            try:
                sent = self._socket.send(answer)
            except BlockingIOError:
                sent = 0
            if sent == len(answer):
                return None
            answer = answer[sent:]
        return self._enqueue(Answer([answer], len(answer)))

    def _enqueue(self, answer: Answer) -> Unfinished | None:
        for ticket in answer.tickets:
            newest = self._waits.get(ticket.log)
            if newest is None or ticket.end_offset > newest.end_offset:
                self._waits[ticket.log] = ticket
        self._out.append(answer)
        self._out_bytes += answer.size_bytes
        if self._out_bytes >= OUTPUT_FLUSH_BYTES or len(self._out) >= OUTPUT_FLUSH_ANSWERS:
            return self._flush()
        return None

    def _flushed_at_once(self) -> bool:
        """Send all answers if nothing has to be waited for; False: what is left of them is for `_flush` to send."""
        if self._waits:
            if not self._settled(self._waits):
                return False
            self._waits = {}
        out = self._out
        parts = out[0].parts if len(out) == 1 else [part for answer in out for part in answer.parts]
        if self._out_bytes > JOIN_BYTES_MAX or FileRegion in map(type, parts):
            self._out, self._out_bytes = [], 0
            self._rest = start_sending(self._socket, parts)
            return self._rest is None
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return False
        if sent < len(data):
            rest = memoryview(data)[sent:]
            self._out, self._out_bytes = [Answer([rest], len(rest))], len(rest)
            return False
        self._out, self._out_bytes = [], 0
        return True

    def _settled(self, waits: "dict[PartitionLog, Ticket]") -> bool:
        """Whether the answers may leave as they are; where only a brief flush is missing, it is done on the spot."""
        commit = self._node.commit
        if any(log.binds_late for log in waits):
            return False  # their answers are to be revised
        if all(map(commit.is_settled, waits.values())):
            return True
        return commit.settle_here(self, waits) and all(map(commit.is_settled, waits.values()))

    async def _flush(self) -> None:
        """Wait until the answers may leave, and send them all."""
        if self._rest is not None:
            rest, self._rest = self._rest, None
            await rest.finish(self._made_progress)
            return
        waits = self._waits
        if waits:
            self._waits = {}
            if await self._node.commit_all(waits.values()):
                for answer in self._out:
                    answer.revise()
        out, self._out, self._out_bytes = self._out, [], 0
        await send_parts(self._socket, [part for answer in out for part in answer.parts], self._made_progress)

    def _made_progress(self) -> None:
        self.last_active = self._server.now
