"""One client connection: bytes in, frames parsed, handlers called in order, answers out in one send."""

import logging
import socket
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import trio

from fencepost.broker.context import CloseConnection, DurableReply, Endpoint, RequestContext
from fencepost.broker.dispatch import Route, UnservedRequest
from fencepost.broker.frames import BadFrame, FrameBuffer
from fencepost.broker.transmission import send_parts
from fencepost.protocol.headers import RequestHeader, read_request_header, write_response_header
from fencepost.protocol.registry import API_BY_KEY, API_VERSIONS, Api
from fencepost.protocol.schema import DecodeError

if TYPE_CHECKING:
    from fencepost.broker.log.partition import PartitionLog
    from fencepost.broker.node import Node
    from fencepost.broker.server import Server

logger = logging.getLogger(__name__)

ROUNDS_BEFORE_CHECKPOINT = 8
BYTES_BEFORE_CHECKPOINT = 1 << 20
"""A MiB of batches is some milliseconds of work: whoever sends without a pause lets others run after it."""
OUTPUT_FLUSH_BYTES = 1 << 20
OUTPUT_FLUSH_ANSWERS = 128


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
        self._out: list[Any] = []
        self._out_bytes = 0
        self._out_answers = 0
        self._waits: dict[PartitionLog, int] = {}
        self._durable: list[tuple[int, int, Api, RequestHeader, DurableReply]] = []
        """The answers in `_out` that wait for the disk, with where they begin and end in it."""
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
        frames = self._frames
        rounds = worked_bytes = 0
        self.idle = False
        while True:
            try:
                received = self._socket.recv_into(frames.space())
            except BlockingIOError:
                rounds = worked_bytes = 0
                await self._wait_for_input()
                continue
            if not received:
                return
            self.last_active = self._server.now
            frames.received(received)
            while (frame := frames.next_frame()) is not None:
                await self._answer(frame)
            if self._out or self._waits:
                await self._flush()
            if self._server.draining:
                return
            rounds += 1
            worked_bytes += received
            if rounds >= ROUNDS_BEFORE_CHECKPOINT or worked_bytes >= BYTES_BEFORE_CHECKPOINT:
                rounds = worked_bytes = 0
                await trio.lowlevel.checkpoint()

    async def _wait_for_input(self) -> None:
        self.idle = True
        try:
            await trio.lowlevel.wait_readable(self._socket)
        finally:
            self.idle = False

    async def _answer(self, frame: memoryview) -> None:
        """Handle one request and put its answer behind those that wait to be sent."""
        self.requests += 1
        header = read_request_header(frame)
        dispatch = self._server.dispatch
        if header.api_key == API_VERSIONS and not API_BY_KEY[API_VERSIONS].serves(header.api_version):
            route, request = dispatch.route(API_VERSIONS, 0), None
            header = header._replace(api_version=0)
        else:
            route = dispatch.route(header.api_key, header.api_version)
            request = _decode(route.api, frame, header)
        if not route.prompt and self._out:
            await self._flush()
        reply = await self._handle(route, request, header)
        if reply is not None:
            self._enqueue(route, header, reply)
            if self._out_bytes >= OUTPUT_FLUSH_BYTES or self._out_answers >= OUTPUT_FLUSH_ANSWERS:
                await self._flush()

    async def _handle(self, route: Route, request: Any, header: RequestHeader) -> Any:
        context = RequestContext(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            self.peer.host,
            self._listener,
        )
        clock = self._node.clock
        began = clock.monotonic()
        self.busy_in_handler = True
        try:
            return await route.handle(self._node, request, context)
        finally:
            self.busy_in_handler = False
            self._node.metrics.count_request(header.api_key, clock.monotonic() - began)

    def _enqueue(self, route: Route, header: RequestHeader, reply: Any) -> None:
        if isinstance(reply, DurableReply):
            for log, end_offset in reply.waits.items():
                if end_offset > self._waits.get(log, -1):
                    self._waits[log] = end_offset
            parts = _frame(route.api, header, reply.response)
            at = len(self._out)
            self._durable.append((at, at + len(parts), route.api, header, reply))
        else:
            parts = _frame(route.api, header, reply)
        self._out += parts
        self._out_bytes += sum(map(len, parts))
        self._out_answers += 1

    async def _flush(self) -> None:
        """Wait until the answers may leave, and send them all."""
        waits = self._waits
        if waits:
            self._waits = {}
            lost = await self._node.commit_all(waits)
            if lost:
                self._tell_of(lost)
            self._durable.clear()
        out, self._out = self._out, []
        self._out_bytes = self._out_answers = 0
        await send_parts(self._socket, out, self._made_progress)

    def _tell_of(self, lost: "Collection[PartitionLog]") -> None:
        """These logs went offline: write the answers that waited for them anew, the last one first."""
        for start, stop, api, header, reply in reversed(self._durable):
            reply.refuse(lost)
            self._out[start:stop] = _frame(api, header, reply.response)

    def _made_progress(self) -> None:
        self.last_active = self._server.now


def _frame(api: Api, header: RequestHeader, reply: Any) -> list[Any]:
    """An answer as pieces to be sent, its length in front."""
    parts = api.response.encode_parts(reply, header.api_version)
    head = write_response_header(api, header.api_version, header.correlation_id)
    size = len(head) + sum(map(len, parts))
    return [size.to_bytes(4, "big") + head, *parts]


def _decode(api: Api, frame: memoryview, header: RequestHeader) -> Any:
    """The body of a request. What its frame holds behind the last field is not looked at, as in Kafka.

    Clients in use do send more than they should: librdkafka 1.0 behind ApiVersions v0, 2.0 behind ListGroups v4 and
    OffsetFetch v7, 2.x behind Metadata v9 and later (its issue 5049).
    """
    return api.request.decode_prefix(frame, header.api_version, header.body_start)[0]
