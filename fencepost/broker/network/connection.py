"""One client connection, and the way of a frame: receive, frame, header, route, decode, handler, queue, send."""

import logging
import socket
from collections.abc import Coroutine
from typing import Any, Protocol, TypeAlias

import trio

from fencepost.broker.network.context import CloseConnection, Endpoint, RequestContext
from fencepost.broker.network.dispatch import Dispatch, Route, UnservedRequest
from fencepost.broker.network.frames import BadFrame, FrameBuffer
from fencepost.broker.network.poller import Poller, Registration, Work, failed, register
from fencepost.broker.network.reply import READY, Ready
from fencepost.broker.network.response_queue import ResponseQueue
from fencepost.broker.ports import HasClock, HasFlusher, HasMetrics
from fencepost.coordinator.deferred import Deferred
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import DecodeError

logger = logging.getLogger(__name__)

_API_VERSIONS = ApiKey.API_VERSIONS  # a global: a member read from its enum costs twenty times as much
Unfinished = Coroutine[Any, Any, None]
"""The rest of what a plain function began: to be awaited before anything else is done."""


class _Broker(HasClock, HasFlusher, HasMetrics, Protocol):
    """What a connection itself needs of the broker."""


class _Server(Protocol):
    """What a connection needs of the server that accepted it."""

    @property
    def node(self) -> _Broker: ...

    dispatch: Dispatch
    poller: Poller | None
    request_bytes_max: int
    now: float
    """By trio's clock, as of the last sweep."""
    draining: bool
    """The broker ends in order: what has come is answered, nothing more is read."""


_Owed: TypeAlias = tuple[Route, int, float]
"""A request whose response is not there yet: its route, its correlation id, and when it began by the broker's clock."""


class Connection:
    """One connection and its task.

    Everything it holds is bounded: input by `socket.request.max.bytes` (and grown only by bytes that arrived),
    output as `ResponseQueue` says, since nothing is read while a response waits to be sent: a client
    that does not read stops only itself. No exception leaves `run`, apart from the broker's own end.

    A request that can be answered at once meets no coroutine on its way, nor trio's loop. What its plain functions
    return, unless it is None, must be awaited before anything else is done.
    """

    __slots__ = (
        "_frames",
        "_listener",
        "_node",
        "_parked",
        "_registration",
        "_responses",
        "_scope",
        "_server",
        "_socket",
        "busy_in_handler",
        "idle",
        "last_active",
        "opened",
        "peer",
        "requests",
    )

    def __init__(self, server: _Server, sock: socket.socket, peer: Endpoint, listener: Endpoint) -> None:
        self.peer = peer
        self.opened = self.last_active = server.now
        self.requests = 0
        self.idle = True
        """Waiting for input, with nothing begun: may be closed at any time without loss."""
        self.busy_in_handler = False
        self._server = server
        self._node = server.node
        self._socket = sock
        self._listener = listener
        self._frames = FrameBuffer(server.request_bytes_max)
        self._responses = ResponseQueue(server.node, sock)
        self._registration: Registration
        self._parked: tuple[_Owed, Deferred[Ready]] | None = None
        """The request that another connection's request will answer. Nothing is read until then."""
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """Serve until either side ends the connection."""
        with self._scope:
            try:
                await self._serve_until_refused()
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
        """Give back a large input buffer of a connection that sends nothing."""
        self._frames.shrink()

    def _send(self) -> Unfinished:
        return self._responses.send(self._made_progress)

    def _made_progress(self) -> None:
        self.last_active = self._server.now

    async def _serve_until_refused(self) -> None:
        """Serve; what stands before a request that ends the connection is answered, as in Kafka."""
        try:
            await self._serve()
        except (BadFrame, DecodeError, UnservedRequest, CloseConnection) as error:
            self._node.metrics.connections_refused += 1
            logger.warning("closing connection peer=%s cause=%s", self.peer, error)
            self.idle = False
            if self._responses.count:
                await self._send()

    async def _serve(self) -> None:
        """Wait for input, which is served meanwhile as far as plain functions can, and do what needs a task."""
        registration = self._registration = register(self._server.poller, self._socket, self._serve_input)
        try:
            goes_on = True
            while goes_on:
                self.idle = self._parked is None
                work = await registration.wait()
                self.idle = False
                goes_on = await work
        finally:
            registration.close()
            del self._registration  # it knows us, and whatever goes round in a circle waits long for the collector
            if self._parked is not None:
                self._parked[1].abandon()
                self._parked = None

    # The way of a frame

    def _serve_input(self) -> Work | None:
        """Receive once, and answer what came. What is returned must be awaited before more is received."""
        try:
            received = self._socket.recv_into(self._frames.space())
        except BlockingIOError:
            return None
        if not received:
            return _ended()
        self.last_active = self._server.now
        self._frames.received(received)
        while (frame := self._frames.next_frame()) is not None:
            if (unfinished := self._serve_frame(frame)) is not None:
                return self._for_task(self._finish(unfinished))
            if self._parked is not None:
                return None
        if self._responses.count and not self._responses.try_send():
            return self._for_task(self._finish(self._send()))
        return _ended() if self._server.draining else None

    def _for_task(self, work: Work) -> Work:
        """The task is woken for this a turn of the loop later: a drain that looks meanwhile must not see it idle."""
        self.idle = False
        return work

    async def _finish(self, unfinished: Unfinished | None) -> bool:
        """Do what a plain function left unfinished, then serve what else has been received."""
        if unfinished is not None:
            await unfinished
        while self._parked is None and (frame := self._frames.next_frame()) is not None:
            if (unfinished := self._serve_frame(frame)) is not None:
                await unfinished
        if self._responses.count and not self._responses.try_send():
            await self._send()
        return not self._server.draining

    def _serve_frame(self, frame: memoryview) -> Unfinished | None:
        """Serve one request, as far as nothing has to be waited for. Raises DecodeError and UnservedRequest.

        What a frame holds behind the last field is not looked at, as in Kafka. Clients in use do send more than they
        should: librdkafka 1.0 behind ApiVersions v0, 2.0 behind ListGroups v4 and OffsetFetch v7, 2.x behind Metadata
        v9 and later (its issue 5049).
        """
        self.requests += 1
        key, version, correlation_id, client_id, body_start = read_request_header(frame)
        request = None
        if key == _API_VERSIONS and not API_BY_KEY[key].serves(version):
            version = 0  # KIP-511: answered in the oldest version, whatever the body is
            route = self._server.dispatch.route(key, version)
        else:
            route = self._server.dispatch.route(key, version)
            try:
                request, _ = route.decode(frame, body_start)
            except Exception:
                route.api.request.decode_prefix(frame, version, body_start)
                raise
        context = RequestContext(key, version, correlation_id, client_id, self.peer.host, self._listener)
        if self._responses.count and not route.prompt and not self._responses.try_send():
            return self._handle_after_send(route, request, context)
        return self._handle(route, request, context)

    def _handle(self, route: Route, request: Any, context: RequestContext) -> Unfinished | None:
        """Have the request handled, and put the response into the queue when it is there.

        Every request passes here once, whatever its API: a check before every handler (may this client do this, does
        a quota hold it back) belongs in front of the handler's call.
        """
        owed = route, context.correlation_id, self._node.clock.monotonic()
        reply = route.handle(self._node, request, context)
        if isinstance(reply, READY):
            return self._respond(owed, reply)
        if isinstance(reply, Deferred):
            return self._park(owed, reply)
        return self._respond_later(owed, reply)

    def _respond(self, owed: _Owed, reply: Ready) -> Unfinished | None:
        """Count the request, and queue its response."""
        route, correlation_id, began = owed
        self._node.metrics.count_request(route.api.key, self._node.clock.monotonic() - began)
        if reply is None:
            return None
        return self._send() if self._responses.put(route, correlation_id, reply) else None

    async def _handle_after_send(self, route: Route, request: Any, context: RequestContext) -> None:
        """The responses before it leave first: its handler may wait for other clients or for time."""
        await self._send()
        if (unfinished := self._handle(route, request, context)) is not None:
            await unfinished

    async def _respond_later(self, owed: _Owed, waiting: Coroutine[Any, Any, Ready]) -> None:
        """Wait for the reply; then as `_respond`."""
        self.busy_in_handler = True
        try:
            reply = await waiting
        except BaseException:
            route, _, began = owed
            self._node.metrics.count_request(route.api.key, self._node.clock.monotonic() - began)
            raise
        finally:
            self.busy_in_handler = False
        if (unfinished := self._respond(owed, reply)) is not None:
            await unfinished

    # A request that another connection's request answers

    def _park(self, owed: _Owed, deferred: Deferred[Ready]) -> Unfinished | None:
        """Read nothing until the reply is there, without the connection's task."""
        if deferred.is_complete:
            return self._respond_later(owed, deferred.wait())
        self._parked = owed, deferred
        self._registration.pause_reading()
        self.idle = False
        self.busy_in_handler = True
        deferred.then(self._unpark)
        return None

    def _unpark(self) -> None:
        """The reply is there: respond from here, unless there is something to wait for, or more to do."""
        assert self._parked is not None
        owed, deferred = self._parked
        self._parked = None
        try:
            work = self._unparked(owed, deferred)
        except Exception as error:  # noqa: BLE001 - it is this connection's, not that of the request under way
            work = failed(error)
        self.idle = work is None
        self._registration.resume_reading(work)

    def _unparked(self, owed: _Owed, deferred: Deferred[Ready]) -> Work | None:
        """Respond to a request that was parked; what is left is the task's."""
        if not deferred.may_leave:
            return self._finish(self._respond_later(owed, deferred.wait()))
        self.busy_in_handler = False
        unfinished = self._respond(owed, deferred.now())
        if unfinished is not None or self._server.draining or self._frames.pending_bytes:
            return self._finish(unfinished)
        return None if self._responses.try_send() else self._finish(self._send())


async def _ended() -> bool:
    return False
