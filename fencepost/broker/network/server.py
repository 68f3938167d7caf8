"""The server: accepts connections of all listeners, closes silent ones, and closes all when the broker stops."""

import errno
import logging
import math
import socket
from typing import Protocol

import trio

from fencepost.broker.network.connection import Connection
from fencepost.broker.network.context import CloseConnection, Endpoint, Session
from fencepost.broker.network.dispatch import Dispatch
from fencepost.broker.network.large_requests import LargeRequests
from fencepost.broker.network.listening import Listening
from fencepost.broker.network.poller import poller_of_loop
from fencepost.broker.ports import HasAuthorizer, HasClock, HasConfig, HasFlusher, HasMetrics, HasQuotas
from fencepost.broker.security.principal import Principal
from fencepost.broker.ticker import every

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
FIRST_REQUEST_SECONDS = 30.0
IDLE_BUFFER_SECONDS = 5.0
OUT_OF_DESCRIPTORS_SECONDS = 0.5
_ANY_ADDRESS = ("0.0.0.0", "::")
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class _Broker(HasAuthorizer, HasClock, HasConfig, HasFlusher, HasMetrics, HasQuotas, Protocol):
    """What the server and its connections need of the broker."""


class Server:
    """The listeners of one broker, and their connections."""

    def __init__(self, node: _Broker, dispatch: Dispatch) -> None:
        config = node.config
        self.node = node
        self.dispatch = dispatch
        self.large_requests = LargeRequests()
        self.poller = poller_of_loop()
        self.now = trio.current_time()
        """trio's time at the last sweep, at most about a second old: reading it costs nothing."""
        self.draining = False
        self.request_bytes_max = config.socket_request_max_bytes
        self.connections: set[Connection] = set()
        self._connections_max = config.max_connections
        idle_ms = config.connections_max_idle_ms
        self._idle_seconds = idle_ms / 1000 if idle_ms >= 0 else math.inf
        self._nursery: trio.Nursery | None = None
        self._listenings: list[Listening] = []
        self._accepting = trio.CancelScope()

    def listen(self, listening: Listening) -> None:
        """Accept connections of this listener, once the server runs."""
        self._listenings.append(listening)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and serve until `drain`. A nursery in this call runs the connections' tasks."""
        try:
            await self._run(task_status)
        finally:
            self._close_sockets()

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            sweep = trio.CancelScope()

            async def watch() -> None:
                with sweep:
                    await every(SWEEP_SECONDS, self._sweep)

            nursery.start_soon(watch)
            with self._accepting:
                async with trio.open_nursery() as acceptors:
                    for listening in self._listenings:
                        acceptors.start_soon(self._accept, listening, nursery)
                    await trio.sleep_forever()  # until `drain`: `adopt` may add connections, too
            sweep.cancel()

    async def drain(self, limit_seconds: float) -> None:
        """Stop accepting, wait at most `limit_seconds` for requests in progress, and close every connection."""
        self.draining = True
        self._accepting.cancel()
        self._close_sockets()
        with trio.move_on_after(limit_seconds):
            while self.connections:
                for connection in tuple(self.connections):
                    if connection.idle:
                        connection.cancel("the broker stops")
                await trio.sleep(0.01)
        for connection in tuple(self.connections):
            logger.warning("closing connection during a request peer=%s", connection.peer)
            connection.cancel("the broker stops")

    def _close_sockets(self) -> None:
        for listening in self._listenings:
            listening.socket.close()

    async def _accept(self, listening: Listening, nursery: trio.Nursery) -> None:
        while True:
            try:
                sock, address = listening.socket.accept()
            except BlockingIOError:
                await trio.lowlevel.wait_readable(listening.socket)
            except OSError as error:
                if error.errno in _NO_DESCRIPTORS:
                    logger.error("cannot accept connections cause=%s", error)
                    await trio.sleep(OUT_OF_DESCRIPTORS_SECONDS)
                else:  # the client closed the connection before it was accepted (ECONNABORTED and similar)
                    await trio.lowlevel.checkpoint()
            else:
                self._begin(sock, Endpoint(*address[:2]), listening, nursery)

    def adopt(self, sock: socket.socket, peer: Endpoint, listener: Endpoint) -> None:
        """Serve a connection that did not come from the listening socket, for example one end of a socket pair.

        `listener` is the broker's address in responses to this client. Call it only while `run` runs.
        """
        assert self._nursery is not None, "the server is not running"
        if self.draining:
            sock.close()
        elif self._may_begin(sock, peer):
            sock.setblocking(False)
            self._nursery.start_soon(self._serve, Connection(self, sock, peer, Session(peer.host, listener)))

    def _may_begin(self, sock: socket.socket, peer: Endpoint) -> bool:
        metrics = self.node.metrics
        metrics.connections_opened += 1
        if len(self.connections) < self._connections_max:
            return True
        metrics.connections_refused += 1
        logger.warning("closing connection peer=%s cause=max.connections=%d", peer, self._connections_max)
        sock.close()
        return False

    def _begin(self, sock: socket.socket, peer: Endpoint, listening: Listening, nursery: trio.Nursery) -> None:
        if not self._may_begin(sock, peer):
            return
        try:
            session = listening.session(sock, peer)
        except OSError:
            sock.close()
            return
        nursery.start_soon(self._serve, Connection(self, sock, peer, session, listening.tls))

    def check_principal(self, principal: Principal) -> None:
        """Check a login, which has set the principal already. Raises CloseConnection over the bound."""
        most = self.node.config.principal_max_connections
        if most < 0:
            return
        count = sum(connection.session.principal == principal for connection in self.connections)
        if count > most:
            raise CloseConnection(f"{principal} has {most} connections already (principal.max.connections)")

    async def _serve(self, connection: Connection) -> None:
        self.connections.add(connection)
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)
            self.node.metrics.connections_closed += 1

    def _sweep(self) -> None:
        """Close connections that are silent for too long, and shrink the buffers of connections silent for a while."""
        now = trio.current_time()
        self.node.metrics.loop_lag_seconds = max(0.0, now - self.now - SWEEP_SECONDS)
        self.now = now
        for connection in tuple(self.connections):
            silent = now - connection.last_active
            if connection.requests == 0 and now - connection.opened > FIRST_REQUEST_SECONDS:
                self._close_silent(connection, f"no request within {FIRST_REQUEST_SECONDS:.0f} s")
            elif silent > self._idle_seconds and not connection.busy_in_handler:
                self._close_silent(connection, "connections.max.idle.ms")
            elif silent > IDLE_BUFFER_SECONDS and connection.idle:
                connection.release_idle_memory()

    def _close_silent(self, connection: Connection, why: str) -> None:
        self.node.metrics.connections_expired += 1
        connection.cancel(why)
