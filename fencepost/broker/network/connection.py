"""One client connection: bytes in, frames parsed, handlers called in order, answers out in one send."""

import logging
import socket
from collections.abc import Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import trio

from fencepost.broker.network.answers import Answer, answer_of
from fencepost.broker.network.context import CloseConnection, Endpoint, RequestContext
from fencepost.broker.network.dispatch import Route, UnservedRequest
from fencepost.broker.network.frames import LEAST_FREE_BYTES, LENGTH_BYTES, BadFrame, FrameBuffer
from fencepost.broker.network.later import Later, Parked
from fencepost.broker.network.outgoing import Outgoing, Unfinished
from fencepost.broker.network.poller import Seat, Work, failed
from fencepost.protocol.headers import RequestHeader, read_request_header
from fencepost.protocol.registry import API_BY_KEY, API_VERSIONS, Api
from fencepost.protocol.schema import DecodeError

if TYPE_CHECKING:
    from fencepost.broker.network.repeated_group import RepeatedGroup, Said
    from fencepost.broker.network.repeated_produce import RepeatedProduce
    from fencepost.broker.network.repeated_txn import RepeatedTxn
    from fencepost.broker.network.server import Server

logger = logging.getLogger(__name__)

PRODUCE, JOIN_GROUP, HEARTBEAT, SYNC_GROUP, ADD_PARTITIONS_TO_TXN, END_TXN = 0, 11, 12, 14, 24, 26
OF_GROUPS = frozenset({JOIN_GROUP, HEARTBEAT, SYNC_GROUP})
LEARNT = OF_GROUPS | {PRODUCE, ADD_PARTITIONS_TO_TXN, END_TXN}
"""APIs whose requests are remembered by their bytes (decision 17), unless a task has to wait for their answers."""


class Connection(Outgoing):
    """One connection and its task.

    Everything it holds is bounded: input by `socket.request.max.bytes` (and grown only by bytes that arrived),
    output as `Outgoing` says, since nothing is read while an answer waits to be sent: a client
    that does not read stops only itself. No exception leaves `run`, apart from the broker's own end.
    """

    __slots__ = (
        "_frames",
        "_listener",
        "_parked",
        "_repeated",
        "_repeated_group",
        "_repeated_txn",
        "_scope",
        "_seat",
        "busy_in_handler",
        "idle",
        "opened",
        "peer",
        "requests",
    )

    def __init__(self, server: "Server", sock: socket.socket, peer: Endpoint, listener: Endpoint) -> None:
        super().__init__(server, sock)
        self.peer = peer
        self.opened = server.now
        self.requests = 0
        self.idle = True
        """Waiting for input, with nothing begun: may be closed at any time without loss."""
        self.busy_in_handler = False
        self._listener = listener
        self._frames = FrameBuffer(server.request_bytes_max)
        self._seat: Seat
        self._parked: Parked[Any] | None = None
        self._repeated: RepeatedProduce | None = None
        self._repeated_txn: RepeatedTxn | None = None
        self._repeated_group: RepeatedGroup | None = None
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
        """Wait for input, which is served meanwhile as far as plain functions can, and do what needs a task."""
        seat = self._seat = self._server.readiness.seat(self._socket, self._serve_input)
        try:
            goes_on = True
            while goes_on:
                self.idle = self._parked is None
                work = await seat.wait()
                self.idle = False
                goes_on = await work
        finally:
            seat.leave()
            del self._seat  # it knows us, and whatever goes round in a circle waits long for the collector
            if self._parked is not None:
                self._parked.leave()

    def _serve_input(self) -> Work | None:
        """Receive once, answer, send. What it returns must be awaited before more is received.

        A request that can be answered at once meets no coroutine on its way, nor trio's loop: at this place that is
        worth more than all else.
        """
        frames = self._frames
        if self._repeated_group is not None and frames.is_fresh:
            return self._serve_member(self._repeated_group)
        try:
            received = self._socket.recv_into(frames.space())
        except BlockingIOError:
            return None
        if not received:
            return _ended()
        self.last_active = self._server.now
        frames.received(received)
        return self._serve_frames()

    def _serve_member(self, member: "RepeatedGroup") -> Work | None:
        """As `_serve_input`, for a group's member, who mostly sends one small request, and one that is known.

        Where a thousand of them take turns, each one's buffer has left the CPU's caches: it is not touched for such a
        request (docs/decisions/0047-what-a-request-touches.md).
        """
        try:
            data = self._socket.recv(LEAST_FREE_BYTES)
        except BlockingIOError:
            return None
        if not data:
            return _ended()
        self.last_active = self._server.now
        if len(data) == int.from_bytes(data[:LENGTH_BYTES], "big") + LENGTH_BYTES:
            said = member.answer_small(data[LENGTH_BYTES:])
            if said is not None:
                self.requests += 1
                unfinished = self._say(said)
                if unfinished is None and (self._parked is not None or not (self._out or self._server.draining)):
                    return None
                return self._for_task(self._finish(unfinished))
        self._frames.put(data)
        return self._serve_frames()

    def _say(self, said: "Said") -> Unfinished | None:
        """Answer a known request of a group's member, or wait for what answers it."""
        return self._put(said) if isinstance(said, (bytes, Answer)) else self._take_up(said)

    def _serve_frames(self) -> Work | None:
        """Handle what has been received, and send the answers."""
        frames = self._frames
        while (frame := frames.next_frame()) is not None:
            if (unfinished := self._answer(frame)) is not None:
                return self._for_task(self._finish(unfinished))
            if self._parked is not None:
                return None
        if self._out and not self._flushed_at_once():
            return self._for_task(self._finish(self._flush()))
        return _ended() if self._server.draining else None

    def _for_task(self, work: Work) -> Work:
        """The task is woken for this a turn of the loop later: who looks meanwhile must not take us for idle."""
        self.idle = False
        return work

    async def _finish(self, unfinished: Unfinished | None = None) -> bool:
        """What a plain function had to leave in the middle."""
        if unfinished is not None:
            await unfinished
        frames = self._frames
        while self._parked is None and (frame := frames.next_frame()) is not None:
            if (more := self._answer(frame)) is not None:
                await more
        if self._out and not self._flushed_at_once():
            await self._flush()
        return not self._server.draining

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
        if self._repeated_group is not None and not self._out:
            said = self._repeated_group.answer(frame)
            if said is not None:
                return self._say(said)
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
        if isinstance(reply, Later):
            return self._take_up(reply.parked(route.api, context.api_version, context.correlation_id, began))
        self._node.metrics.count_request(context.api_key, clock.monotonic() - began)
        if reply is None:
            return None
        return self._enqueue(answer_of(route.api, context.api_version, context.correlation_id, reply))

    def _take_up(self, waiting: Parked[Any] | Coroutine[Any, Any, Answer | bytes]) -> Unfinished | None:
        """A request that could not be answered at once. A parked one is answered in the middle of another one."""
        if not isinstance(waiting, Parked):
            return self._enqueue_later(waiting)
        if not self._seat.can_pause:
            return self._enqueue_parked(waiting, waiting.wait())
        self._parked = waiting  # nothing else is received until then
        self._seat.pause()
        self.idle = False
        self.busy_in_handler = True
        waiting.then(self._unpark)
        return None

    def _unpark(self) -> None:
        """The answer is known. It leaves from here, unless there is something to wait for, or more to do."""
        parked = self._parked
        assert parked is not None
        self._parked = None
        try:
            answer = parked.answer()
            if answer is None:
                self._seat.resume(self._finish(self._enqueue_parked(parked, parked.settled())))
                return
            self.busy_in_handler = False
            self._node.metrics.count_request(parked.api_key, self._node.clock.monotonic() - parked.began)
            unfinished = self._put(answer)
            if unfinished is not None or self._server.draining or self._frames.pending_bytes:
                self._seat.resume(self._finish(unfinished))
            elif not self._out or self._flushed_at_once():
                self.idle = True
                self._seat.resume(None)
            else:
                self._seat.resume(self._finish(self._flush()))
        except Exception as error:  # noqa: BLE001 - it is this connection's, not that of the request under way
            self._seat.resume(failed(error))

    async def _enqueue_parked(self, parked: Parked[Any], waiting: Coroutine[Any, Any, Answer | bytes]) -> None:
        try:
            await self._enqueue_later(waiting)
        finally:
            self._node.metrics.count_request(parked.api_key, self._node.clock.monotonic() - parked.began)

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

    async def _enqueue_later(self, waiting: Coroutine[Any, Any, Answer | bytes]) -> None:
        self.busy_in_handler = True
        try:
            answer = await waiting
        finally:
            self.busy_in_handler = False
        unfinished = self._put(answer)
        if unfinished is not None:
            await unfinished

    def _learn(self, frame: memoryview, request: Any, context: RequestContext) -> None:
        # imported here: they belong to the handlers, see Dispatch
        if context.api_key == PRODUCE:
            if self._repeated is None:
                from fencepost.broker.network.repeated_produce import RepeatedProduce

                self._repeated = RepeatedProduce(self._node)
            self._repeated.learn(frame, request, context)
        elif context.api_key in OF_GROUPS:
            if self._repeated_group is None:
                from fencepost.broker.network.repeated_group import RepeatedGroup

                self._repeated_group = RepeatedGroup(self._node)
            self._repeated_group.learn(frame, request, context)
        else:
            if self._repeated_txn is None:
                from fencepost.broker.network.repeated_txn import RepeatedTxn

                self._repeated_txn = RepeatedTxn(self._node)
            self._repeated_txn.learn(frame, request, context)


async def _ended() -> bool:
    return False


def _decode(api: Api, frame: memoryview, header: RequestHeader) -> Any:
    """The body of a request. What its frame holds behind the last field is not looked at, as in Kafka.

    Clients in use do send more than they should: librdkafka 1.0 behind ApiVersions v0, 2.0 behind ListGroups v4 and
    OffsetFetch v7, 2.x behind Metadata v9 and later (its issue 5049).
    """
    return api.request.decode_prefix(frame, header.api_version, header.body_start)[0]
