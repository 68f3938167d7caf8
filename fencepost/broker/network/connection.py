"""One client connection. A frame's path: receive, frame, header, route, decode, handler, queue, send.

A frame that repeats an earlier one (`RepeatedRequests`) goes from the frame to the handler at once.
"""

import logging
import socket
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeAlias

import trio

from fencepost.broker.network.arrivals import PartialRequest, wait_readable_or_durable
from fencepost.broker.network.connection_ports import ConnectionServer
from fencepost.broker.network.context import CloseConnection, Endpoint, RequestContext, RequestMeter, Session
from fencepost.broker.network.dispatch import RepeatedRequests, Route, UnservedRequest, start_decoding
from fencepost.broker.network.frames import BadFrame, FrameBuffer, NoRoom
from fencepost.broker.network.large_requests import LargeRequest
from fencepost.broker.network.login import LoginGuard, log_in_by_certificate
from fencepost.broker.network.metering import meter_of
from fencepost.broker.network.poller import Registration, Work, failed, register
from fencepost.broker.network.reply import READY, Ready, Reply
from fencepost.broker.network.request_parts import handle_in_parts
from fencepost.broker.network.response_queue import ResponseQueue
from fencepost.broker.network.tls import TlsListener, linger
from fencepost.broker.security.gate import refusal
from fencepost.coordinator.deferred import Deferred
from fencepost.protocol.schema import DecodeError
from fencepost.protocol.stepwise import Steps

logger = logging.getLogger(__name__)

PAUSE_AFTER_SECONDS = 0.005
"""How long one connection's frames are served without a pause for other tasks."""
Continuation = Coroutine[Any, Any, None]
"""The rest of a plain function's work; the connection's task awaits it before it does anything else."""
_Pending: TypeAlias = tuple[Route, RequestContext, float]
"""A request whose response is not there yet: its route, its context, and when it began by the broker's clock."""


class Connection:
    """One connection and its task.

    Its memory is bounded: input by `socket.request.max.bytes` (the buffer grows only with bytes that arrived), output
    by `ResponseQueue`. The connection reads nothing while a response waits to be sent, so a client that does not read
    stops only itself. `run` raises nothing but cancellation.

    A request that can be answered at once needs no coroutine and no pass of trio's loop. If a plain function returns
    something other than None, the caller must await that before it does anything else.
    """

    __slots__ = (
        "_frames",
        "_login_guard",
        "_node",
        "_parked",
        "_registration",
        "_repeated",
        "_responses",
        "_scope",
        "_server",
        "_socket",
        "_tls",
        "arrival",
        "busy_in_handler",
        "idle",
        "last_active",
        "opened",
        "peer",
        "requests",
        "session",
    )

    def __init__(
        self,
        server: ConnectionServer,
        sock: socket.socket,
        peer: Endpoint,
        session: Session,
        tls: TlsListener | None = None,
    ) -> None:
        self.peer = peer
        self.session = session
        self.opened = self.last_active = server.now
        self.requests = 0
        self.idle = True
        """Waiting for input, without a request in progress: the server may close it at any time without loss."""
        self.busy_in_handler = False
        self._server = server
        self._node = server.node
        self._socket = sock
        self._tls = tls
        self._frames = FrameBuffer(server.request_bytes_max, server.request_bytes)
        self.arrival = PartialRequest(self._frames, server.request_bytes)
        self._responses = ResponseQueue(server.node, sock)
        if session.sasl is not None:
            self._login_guard = LoginGuard(session, server, self._frames, self._responses)
        self._repeated: RepeatedRequests | None = None
        self._registration: Registration
        self._parked: tuple[_Pending, Deferred[Ready]] | None = None
        """The request whose response another connection's request completes. Nothing is read until then."""
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
                self._socket.close() if self._tls is None else self._tls.close(self._socket)
                self._frames.close()
                self._responses.close()
                for closed in tuple(self.session.closed.values()):
                    closed()

    def cancel(self, why: str) -> None:
        """Close the connection from outside, whatever its task does."""
        logger.debug("closing connection peer=%s cause=%s", self.peer, why)
        self._scope.cancel()

    def release_idle_memory(self) -> None:
        """Keep a small input buffer and no repeated requests while the client sends nothing."""
        self._frames.shrink()
        self._repeated = None

    def _send(self) -> Continuation:
        return self._responses.send(self._made_progress)

    def _made_progress(self) -> None:
        self.last_active = self._server.now

    async def _serve_until_refused(self) -> None:
        """Serve. Requests before one that closes the connection are answered, as in Kafka."""
        try:
            await self._serve()
        except (BadFrame, DecodeError, UnservedRequest, CloseConnection) as error:
            self._node.metrics.connections_refused += 1
            logger.warning("closing connection peer=%s cause=%s", self.peer, error)
            self.idle = False
            if self._responses.count:
                await self._send()
            if self._tls is not None:
                await linger(self._socket)

    async def _serve(self) -> None:
        """Wait for input. Plain functions serve it as far as they can; this task awaits the rest."""
        if self._tls is not None:
            replace_socket = partial(setattr, self, "_socket")
            await log_in_by_certificate(self._server, self.session, self._tls, self._socket, replace_socket)
            self._responses.encrypt(self._socket, self._tls.start_sending)
            self._made_progress()
        registration = self._registration = register(self._server.poller, self._socket, self)
        try:
            keep_serving = True
            while keep_serving:
                self.idle = self._parked is None and not self._responses.count
                work = await registration.wait()
                self.idle = False
                keep_serving = await work
            if self._responses.count:
                await self._send()  # the client sends no more, and may still read
        finally:
            registration.close()
            del self._registration  # breaks a reference cycle, which would wait long for the garbage collector
            if self._parked is not None:
                self._parked[1].abandon()
                self._parked = None

    # The path of a frame

    def serve_input(self) -> Work | None:
        """Receive once, and answer the requests. The caller must await the result before it receives more."""
        try:
            if self._tls is None:
                received = self._socket.recv_into(self._frames.space())
            else:
                received = self._tls.receive(self._socket, self._frames)
        except BlockingIOError:
            return None
        except NoRoom as found:
            return self._receive_later(found.growth)
        if not received:
            return _ended()
        self.last_active = self._server.now
        self._frames.received(received)
        pause_at = 0.0
        while self._parked is None and (frame := self._frames.next_frame()) is not None:
            if (continuation := self._serve_frame(frame)) is not None:
                return self._for_task(self._finish(continuation))
            if self._frames.pending_bytes:
                now = self._node.clock.monotonic()
                pause_at = pause_at or now + PAUSE_AFTER_SECONDS
                if now > pause_at:
                    return self._for_task(self._finish(None))
        return None

    async def _receive_later(self, growth: int) -> bool:
        """Wait for memory, then receive: TLS may hold bytes that the poller does not see."""
        await self.arrival.wait_for_room(growth)
        work = self.serve_input() or self.send_responses()
        return await work if work is not None else True

    def send_responses(self) -> Work | None:
        """Send what `serve_input` queued. The caller must await the result before it receives more."""
        if self._parked is not None:
            return None
        if self._responses.count and not self._responses.try_send():
            return self._for_task(self._send_or_read_on())
        return _ended() if self._server.draining else None

    def _for_task(self, work: Work) -> Work:
        """Mark the connection busy: the task wakes one pass of the loop later, and a drain must not see it idle."""
        self.idle = False
        return work

    async def _finish(self, continuation: Continuation | None) -> bool:
        """Await the rest of a plain function's work, then serve the other frames in the buffer."""
        if continuation is not None:
            await continuation
        else:
            await trio.lowlevel.checkpoint()
        pause_at = self._node.clock.monotonic() + PAUSE_AFTER_SECONDS
        while self._parked is None and (frame := self._frames.next_frame()) is not None:
            if (continuation := self._serve_frame(frame)) is not None:
                await continuation
            if self._node.clock.monotonic() > pause_at:
                await trio.lowlevel.checkpoint()
                pause_at = self._node.clock.monotonic() + PAUSE_AFTER_SECONDS
        if self._responses.count and not self._responses.try_send():
            return await self._send_or_read_on()
        return not self._server.draining

    async def _send_or_read_on(self) -> bool:
        """Send the responses, unless the client has sent more for the round that they wait for."""
        if not self._server.draining and await wait_readable_or_durable(self._node, self._socket, self._responses):
            return True
        await self._send()
        return not self._server.draining

    def _serve_frame(self, frame: memoryview) -> Continuation | None:
        """Serve one request as far as possible without waiting. Raises DecodeError and UnservedRequest.

        Bytes after the last field are ignored, as in Kafka. Some clients send such bytes: librdkafka 1.0 after
        ApiVersions v0, 2.0 after ListGroups v4 and OffsetFetch v7, 2.x after Metadata v9 and later (its issue 5049).
        """
        self.requests += 1
        if self.session.guarded:
            return self._login_guard.serve(frame, self._serve_admitted)
        return self._serve_admitted(frame)

    def _serve_admitted(self, frame: memoryview) -> Continuation | None:
        """As `_serve_frame`, once the client may send this request."""
        found = self._repeated.find(frame) if self._repeated is not None else None
        return self._decode(frame) if found is None else self._serve_request(*found, len(frame))

    def _serve_request(self, route: Route, request: Any, context: RequestContext, size: int) -> Continuation | None:
        """Handle a decoded request of `size` bytes, after the queued responses if its handler may wait."""
        quotas = self._node.quotas
        context.meter = None if quotas is None else meter_of(self._node, quotas, route, request, context, size)
        if self._responses.count and not route.non_blocking and not self._responses.try_send():
            return self._handle_after_send(route, request, context)
        return self._handle(route, request, context)

    def _decode(self, frame: memoryview) -> Continuation | None:
        """Decode a frame, and serve its request. Raises DecodeError and UnservedRequest."""
        route, request, context, steps = start_decoding(self._node, self.session, frame)
        if steps is not None:
            return self._serve_large(route, context, steps, len(frame))
        if route.repeated is not None:
            if self._repeated is None:
                self._repeated = route.repeated()
            self._repeated.learn(frame, route, request, context)
        return self._serve_request(route, request, context, len(frame))

    async def _serve_large(self, route: Route, context: RequestContext, steps: Steps, size: int) -> None:
        """Decode the rest of a request of many elements in steps, and serve it. Raises DecodeError."""
        large_requests = self._node.large_requests
        request = await large_requests.run(steps)
        if self._responses.count:
            await self._send()
        context.large = LargeRequest(large_requests, request)
        if (continuation := self._serve_request(route, request, context, size)) is not None:
            await continuation

    def _handle(self, route: Route, request: Any, context: RequestContext) -> Continuation | None:
        """Check the rights, call the handler, and queue the response when it is ready.

        Every request passes here once, whatever its API. A check before every handler belongs here.
        """
        node, meter = self._node, context.meter
        pending = route, context, node.clock.monotonic()
        refused = refusal(node, request, context) if node.authorizer is not None else None
        reply: Reply
        if refused is not None:
            reply = refused
        else:
            handle = route.handle if context.large is None else partial(handle_in_parts, route)
            reply = handle(node, request, context)
            if context.large is not None and meter is None:  # a meter may change the response
                reply = node.large_requests.encoded(route, reply)
        if meter is not None:
            reply = meter.handled(reply)
        if isinstance(reply, READY):
            return self._respond(pending, reply)
        if isinstance(reply, Deferred):
            return self._park(pending, reply)
        return self._respond_later(pending, reply)

    def _respond(self, pending: _Pending, reply: Ready) -> Continuation | None:
        """Count the request, and queue its response."""
        route, context, began = pending
        self._node.metrics.count_request(route.api.key, self._node.clock.monotonic() - began)
        throttle_ms, meter = 0, context.meter
        if meter is not None:
            reply, throttle_ms = meter.finish(reply)
        is_full = reply is not None and self._responses.put(route, context.correlation_id, reply)
        if meter is not None and throttle_ms:
            return self._mute(meter, throttle_ms)
        return self._send() if is_full else None

    async def _mute(self, meter: RequestMeter, throttle_ms: int) -> None:
        """Send the response, and read nothing from this client for the throttle time (KIP-219)."""
        until = trio.current_time() + throttle_ms / 1000
        meter.muted(1)
        try:
            if self._responses.count:
                await self._send()
            self.idle = True
            await trio.sleep_until(until)
            self.idle = False
        finally:
            meter.muted(-1)

    async def _handle_after_send(self, route: Route, request: Any, context: RequestContext) -> None:
        """Send the queued responses first: this handler may wait for other clients or for time."""
        await self._send()
        if (continuation := self._handle(route, request, context)) is not None:
            await continuation

    async def _respond_later(self, pending: _Pending, waiting: Coroutine[Any, Any, Ready]) -> None:
        """Wait for the reply, then `_respond`."""
        self.busy_in_handler = True
        try:
            reply = await waiting
        except BaseException:
            route, _, began = pending
            self._node.metrics.count_request(route.api.key, self._node.clock.monotonic() - began)
            raise
        finally:
            self.busy_in_handler = False
        if (continuation := self._respond(pending, reply)) is not None:
            await continuation

    # A request whose response another connection's request completes

    def _park(self, pending: _Pending, deferred: Deferred[Ready]) -> Continuation | None:
        """Stop reading until the reply is complete; the connection's task stays asleep."""
        if deferred.is_complete:
            return self._respond_later(pending, deferred.wait())
        self._parked = pending, deferred
        self._registration.pause_reading()
        self.idle = False
        self.busy_in_handler = True
        deferred.then(self._unpark)
        return None

    def _unpark(self) -> None:
        """The reply is complete: respond here, or wake the task if it must wait or has more to do."""
        assert self._parked is not None
        pending, deferred = self._parked
        self._parked = None
        try:
            work = self._respond_parked(pending, deferred)
        except Exception as error:  # noqa: BLE001 - this connection must fail, not the request that completed it
            work = failed(error)
        self.idle = work is None
        self._registration.resume_reading(work)

    def _respond_parked(self, pending: _Pending, deferred: Deferred[Ready]) -> Work | None:
        """Respond to a parked request. Returns the work that is left for the task."""
        if not deferred.is_sendable:
            return self._finish(self._respond_later(pending, deferred.wait()))
        self.busy_in_handler = False
        continuation = self._respond(pending, deferred.now())
        if continuation is not None or self._server.draining or self._frames.pending_bytes:
            return self._finish(continuation)
        return None if self._responses.try_send() else self._finish(self._send())


async def _ended() -> bool:
    return False
