"""One client connection: bytes in, frames parsed, handlers called in order, answers out in one send."""

import logging
import socket
from collections.abc import Coroutine
from itertools import starmap
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import trio

from fencepost.broker.answers import Answer, answer_of
from fencepost.broker.context import CloseConnection, Endpoint, RequestContext
from fencepost.broker.dispatch import Route, UnservedRequest
from fencepost.broker.frames import BadFrame, FrameBuffer
from fencepost.broker.log.store import FileRegion
from fencepost.broker.transmission import JOIN_BYTES_MAX, send_parts
from fencepost.protocol.headers import RequestHeader, read_request_header
from fencepost.protocol.registry import API_BY_KEY, API_VERSIONS, Api
from fencepost.protocol.schema import DecodeError

if TYPE_CHECKING:
    from fencepost.broker.log.partition import PartitionLog
    from fencepost.broker.node import Node
    from fencepost.broker.repeated_produce import RepeatedProduce
    from fencepost.broker.repeated_txn import RepeatedTxn
    from fencepost.broker.server import Server

logger = logging.getLogger(__name__)

Unfinished = Coroutine[Any, Any, Any]

ROUNDS_BEFORE_CHECKPOINT = 16
BYTES_BEFORE_CHECKPOINT = 1 << 20
"""A MiB of batches is some milliseconds of work: whoever sends without a pause lets others run after it."""
OUTPUT_FLUSH_BYTES = 1 << 20
OUTPUT_FLUSH_ANSWERS = 128
PRODUCE, ADD_PARTITIONS_TO_TXN, END_TXN = 0, 24, 26
LEARNT = frozenset({PRODUCE, ADD_PARTITIONS_TO_TXN, END_TXN})
"""APIs whose requests are remembered by their bytes (decision 17); those answered at once, by a handler itself."""


class Connection:
    """One connection and its task.

    Everything it holds is bounded: input by `socket.request.max.bytes` (and grown only by bytes that arrived),
    output by `OUTPUT_FLUSH_BYTES` plus one answer, since nothing is read while an answer waits to be sent: a client
    that does not read stops only itself. No exception leaves `run`, apart from the broker's own end.
    """

    def __init__(self, server: "Server", sock: socket.socket, peer: Endpoint, listener: Endpoint) -> None:
        self.peer = peer
        self.opened = self.last_active = server.now
        self.requests = 0
        self.idle = True
        """Waiting for input, with nothing begun: may be closed at any time without loss."""
        self.busy_in_handler = False
        self._server = server
        self._node: Node = server.node
        self._socket = sock
        self._listener = listener
        self._frames = FrameBuffer(server.request_bytes_max)
        self._out: list[Answer] = []
        self._out_bytes = 0
        self._sent_much = False
        self._waits: dict[PartitionLog, int] = {}
        self._repeated: RepeatedProduce | None = None
        self._repeated_txn: RepeatedTxn | None = None
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """Serve until either side ends the connection."""
        with self._scope:
            try:
                await self._serve()
            except (BadFrame, DecodeError, UnservedRequest, CloseConnection) as error:
                self._node.metrics.connections_refused += 1
                logger.warning("closing connection peer=%s cause=%s", self.peer, error)
            except OSError as error:
                logger.debug("connection lost peer=%s cause=%s", self.peer, error)
            except Exception:
                self._node.metrics.connections_failed += 1
                logger.exception("closing connection after an unexpected error peer=%s", self.peer)
            finally:
                self._socket.close()

    def cancel(self, why: str) -> None:
        """Close the connection from outside, whatever its task does."""
        logger.debug("closing connection peer=%s cause=%s", self.peer, why)
        self._scope.cancel()

    def release_idle_memory(self) -> None:
        """Give back a large input buffer of a connection that says nothing."""
        self._frames.shrink()

    async def _serve(self) -> None:
        """Receive, answer, send, as long as the socket has something; wait only where it has not.

        A request that can be answered at once meets no coroutine on its way, nor trio's loop: at this place that is
        worth more than all else.
        """
        frames, server, sock = self._frames, self._server, self._socket
        receive, wait_readable = sock.recv_into, trio.lowlevel.wait_readable
        rounds = worked_bytes = 0
        while True:
            try:
                received = receive(frames.space())
            except BlockingIOError:
                rounds = worked_bytes = 0
                self.idle = True  # until something is received
                await wait_readable(sock)
                continue
            if not received:
                return
            self.idle = False
            self.last_active = server.now
            frames.received(received)
            while (frame := frames.next_frame()) is not None:
                if (unfinished := self._answer(frame)) is not None:
                    await unfinished
            if self._out and not self._flushed_at_once():
                await self._flush()
            if server.draining:
                return
            rounds += 1
            worked_bytes += received
            if self._sent_much:  # the next request will hardly be there: wait rather than ask, and let others run
                self._sent_much = False
                rounds = worked_bytes = 0
                self.idle = True  # until something is received
                await wait_readable(sock)
            elif rounds >= ROUNDS_BEFORE_CHECKPOINT or worked_bytes >= BYTES_BEFORE_CHECKPOINT:
                rounds = worked_bytes = 0
                await trio.lowlevel.checkpoint()

    # Answering. What these functions return, unless it is None, must be awaited before anything else is done: the
    # handler has to wait, or the answers have to leave first.

    def _answer(self, frame: memoryview) -> Unfinished | None:
        """Handle one request and put its answer behind those that wait to be sent."""
        self.requests += 1
        if self._repeated is not None:
            answer = self._repeated.answer(frame)
            if answer is not None:
                return self._enqueue(answer)
        if self._repeated_txn is not None and not self._out:
            soon = self._repeated_txn.answer(frame)
            if soon is not None:
                return self._enqueue(soon) if isinstance(soon, Answer) else self._enqueue_later(soon)
        header = read_request_header(frame)
        dispatch = self._server.dispatch
        if header.api_key == API_VERSIONS and not API_BY_KEY[API_VERSIONS].serves(header.api_version):
            route, request = dispatch.route(API_VERSIONS, 0), None
            header = header._replace(api_version=0)
        else:
            route = dispatch.route(header.api_key, header.api_version)
            request = _decode(route.api, frame, header)
        context = RequestContext(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            self.peer.host,
            self._listener,
        )
        if self._out and not route.prompt:
            return self._handle_after_flush(route, request, context)
        unfinished = self._handle(route, request, context)
        if unfinished is None and header.api_key in LEARNT:
            self._learn(frame, request, context)
        return unfinished

    def _handle(self, route: Route, request: Any, context: RequestContext) -> Unfinished | None:
        clock = self._node.clock
        began = clock.monotonic()
        reply = route.handle(self._node, request, context)
        if isinstance(reply, CoroutineType):
            return self._handle_waiting(route, reply, context, began)
        self._node.metrics.count_request(context.api_key, clock.monotonic() - began)
        if reply is None:
            return None
        return self._enqueue(answer_of(route.api, context.api_version, context.correlation_id, reply))

    async def _handle_waiting(self, route: Route, waiting: Unfinished, context: RequestContext, began: float) -> None:
        self.busy_in_handler = True
        try:
            reply = await waiting
        finally:
            self.busy_in_handler = False
            self._node.metrics.count_request(context.api_key, self._node.clock.monotonic() - began)
        if reply is not None:
            unfinished = self._enqueue(answer_of(route.api, context.api_version, context.correlation_id, reply))
            if unfinished is not None:
                await unfinished

    async def _handle_after_flush(self, route: Route, request: Any, context: RequestContext) -> None:
        await self._flush()
        unfinished = self._handle(route, request, context)
        if unfinished is not None:
            await unfinished

    async def _enqueue_later(self, waiting: Coroutine[Any, Any, Answer]) -> None:
        self.busy_in_handler = True
        try:
            answer = await waiting
        finally:
            self.busy_in_handler = False
        unfinished = self._enqueue(answer)
        if unfinished is not None:
            await unfinished

    def _learn(self, frame: memoryview, request: Any, context: RequestContext) -> None:
        # imported here: they belong to the handlers, see Dispatch
        if context.api_key == PRODUCE:
            if self._repeated is None:
                from fencepost.broker.repeated_produce import RepeatedProduce

                self._repeated = RepeatedProduce(self._node)
            self._repeated.learn(frame, request, context)
        else:
            if self._repeated_txn is None:
                from fencepost.broker.repeated_txn import RepeatedTxn

                self._repeated_txn = RepeatedTxn(self._node)
            self._repeated_txn.learn(frame, request, context)

    # Sending

    def _enqueue(self, answer: Answer) -> Unfinished | None:
        waits = self._waits
        for log, end_offset in answer.waits:
            if end_offset > waits.get(log, -1):
                waits[log] = end_offset
        self._out.append(answer)
        self._out_bytes += answer.size_bytes
        if self._out_bytes >= OUTPUT_FLUSH_BYTES or len(self._out) >= OUTPUT_FLUSH_ANSWERS:
            return self._flush()
        return None

    def _flushed_at_once(self) -> bool:
        """Send all answers if nothing has to be waited for; False: what is left of them is for `_flush` to send."""
        if self._out_bytes > JOIN_BYTES_MAX:
            return False
        out = self._out
        parts = out[0].parts if len(out) == 1 else [part for answer in out for part in answer.parts]
        if FileRegion in map(type, parts):
            return False
        if self._waits:
            if not self._settled(self._waits):
                return False
            self._waits = {}
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

    def _settled(self, waits: "dict[PartitionLog, int]") -> bool:
        """Whether the answers may leave; where only a brief flush is missing, it is done on the spot."""
        commit = self._node.commit
        settled = commit.settled
        if all(starmap(settled, waits.items())):
            return True
        return commit.settle_here(self, waits) and all(starmap(settled, waits.items()))

    async def _flush(self) -> None:
        """Wait until the answers may leave, and send them all."""
        waits = self._waits
        if waits:
            self._waits = {}
            lost = await self._node.commit_all(waits)
            if lost:
                for answer in self._out:
                    answer.refuse(lost)
        self._sent_much = self._sent_much or self._out_bytes > JOIN_BYTES_MAX
        out, self._out, self._out_bytes = self._out, [], 0
        await send_parts(self._socket, [part for answer in out for part in answer.parts], self._made_progress)

    def _made_progress(self) -> None:
        self.last_active = self._server.now


def _decode(api: Api, frame: memoryview, header: RequestHeader) -> Any:
    """The body of a request. What its frame holds behind the last field is not looked at, as in Kafka.

    Clients in use do send more than they should: librdkafka 1.0 behind ApiVersions v0, 2.0 behind ListGroups v4 and
    OffsetFetch v7, 2.x behind Metadata v9 and later (its issue 5049).
    """
    return api.request.decode_prefix(frame, header.api_version, header.body_start)[0]
