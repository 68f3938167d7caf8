"""The server: accepts connections of all listeners, closes silent ones, and closes all when the broker stops."""

import errno
import logging
import math
import socket
import time

import trio

from fencepost.broker.byte_budget import ByteBudget
from fencepost.broker.log.upkeep_failures import UpkeepFailures
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.connection_limits import ConnectionLimits
from fencepost.broker.network.context import CloseConnection, Endpoint, Session
from fencepost.broker.network.listening import Listening
from fencepost.broker.network.poller import poller_of_loop
from fencepost.broker.periodic import run_periodically
from fencepost.broker.ports import Broker
from fencepost.broker.security.principal import CLUSTER, Principal
from fencepost.broker.security.quotas import quota_ms

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
FIRST_REQUEST_SECONDS = 30.0
IDLE_BUFFER_SECONDS = 5.0
STALLED_SECONDS = 3.0
"""While the budget of request bytes is used up, a part of a request without new bytes for this time is dropped."""
OUT_OF_DESCRIPTORS_SECONDS = 0.5
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Server:
    """The listeners of one broker, and their connections."""

    def __init__(self, node: Broker, upkeep: UpkeepFailures | None = None) -> None:
        config = node.config
        self.node = node
        self.poller = poller_of_loop()
        self._cpu = time.thread_time()
        self.now = trio.current_time()
        """trio's time at the last sweep, at most about a second old: reading it costs nothing."""
        self.draining = False
        self.request_bytes_max = config.socket_request_max_bytes
        self.connections: set[Connection] = set()
        most = config.queued_max_request_bytes
        self.request_bytes = ByteBudget(most if most < 0 else max(most, config.socket_request_max_bytes * 2))
        self._limits = ConnectionLimits(config)
        self._upkeep = UpkeepFailures() if upkeep is None else upkeep
        self._arrival_seconds = config.request_arrival_timeout_ms / 1000
        idle_ms = config.connections_max_idle_ms
        self._idle_seconds = idle_ms / 1000 if idle_ms >= 0 else math.inf
        self._nursery: trio.Nursery | None = None
        self._listenings: list[Listening] = []
        self._accepting = trio.CancelScope()

    def listen(self, listening: Listening) -> None:
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
                    await run_periodically(self._upkeep, "the check of connections", SWEEP_SECONDS, self._sweep)

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
                await self._limits.next_accept(address[0])

    def adopt(self, sock: socket.socket, peer: Endpoint, listener: Endpoint) -> None:
        """Serve a connection that did not come from the listening socket, for example one end of a socket pair.

        `listener` is the broker's address in responses to this client. Call it only while `run` runs.
        """
        assert self._nursery is not None, "the server is not running"
        if self.draining:
            sock.close()
        elif self._may_begin(sock, peer):
            sock.setblocking(False)
            self._start(Connection(self, sock, peer, Session(peer.host, listener)), self._nursery)

    def _may_begin(self, sock: socket.socket, peer: Endpoint) -> bool:
        metrics = self.node.metrics
        forbidden = self._limits.begin(peer.host)
        if forbidden is None:
            metrics.connections_opened += 1
            return True
        metrics.connections_refused += 1
        logger.warning("closing connection peer=%s cause=%s", peer, forbidden)
        sock.close()
        return False

    def _ended(self, peer: Endpoint) -> None:
        self._limits.end(peer.host)
        self.node.metrics.connections_closed += 1

    def _start(self, connection: Connection, nursery: trio.Nursery) -> None:
        self.connections.add(connection)
        nursery.start_soon(self._serve, connection)

    def _begin(self, sock: socket.socket, peer: Endpoint, listening: Listening, nursery: trio.Nursery) -> None:
        if not self._may_begin(sock, peer):
            return
        quotas = self.node.quotas if peer.host else None
        if quotas is not None and (wait_ms := quotas.record_connection(peer.host, quota_ms(self.node.clock))):
            nursery.start_soon(self._close_throttled, sock, peer, wait_ms / 1000)
            return
        try:
            session = listening.session(sock, peer)
        except OSError:
            sock.close()
            self._ended(peer)
            return
        self._start(Connection(self, sock, peer, session, listening.tls), nursery)

    async def _close_throttled(self, sock: socket.socket, peer: Endpoint, seconds: float) -> None:
        """Close a connection beyond the quota of its address, and not at once: the client connects again (KIP-612)."""
        self.node.metrics.connections_refused += 1
        logger.warning("closing connection peer=%s cause=connection_creation_rate of its address", peer)
        try:
            await trio.sleep(seconds)
        finally:
            sock.close()
            self._ended(peer)

    def check_principal(self, principal: Principal) -> None:
        most = self.node.config.principal_max_connections
        if most < 0 or principal == CLUSTER:
            return
        count = sum(connection.session.principal == principal for connection in self.connections)
        if count > most:
            raise CloseConnection(f"{principal} has {most} connections already (principal.max.connections)")

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)
            self._ended(connection.peer)

    def _sweep(self) -> None:
        """Close connections that are silent for too long, and shrink the buffers of connections silent for a while."""
        now = trio.current_time()
        cpu = time.thread_time()
        self.node.metrics.loop_lag_seconds = max(0.0, now - self.now - SWEEP_SECONDS)
        if now > self.now:
            self.node.metrics.loop_busy_share = min(1.0, (cpu - self._cpu) / (now - self.now))
        self.now, self._cpu = now, cpu
        is_short = self.request_bytes.is_short
        for connection in tuple(self.connections):
            silent = now - connection.last_active
            is_new = connection.requests == 0 or connection.session.awaits_login
            if is_new and now - connection.opened > FIRST_REQUEST_SECONDS:
                self._close_silent(connection, f"no request, or no login, within {FIRST_REQUEST_SECONDS:.0f} s")
            elif silent > self._idle_seconds and not connection.busy_in_handler:
                self._close_silent(connection, "connections.max.idle.ms")
            elif now - connection.arrival.since(now, connection.requests, connection.idle) > self._arrival_seconds:
                self._close_silent(connection, "request.arrival.timeout.ms: a request did not arrive completely")
            elif is_short and silent > STALLED_SECONDS and connection.arrival.holds_memory:
                self._close_silent(connection, "queued.max.request.bytes: a stalled request, and others wait")
            elif connection.idle and (is_short or silent > IDLE_BUFFER_SECONDS):
                connection.release_idle_memory()

    def _close_silent(self, connection: Connection, why: str) -> None:
        self.node.metrics.connections_expired += 1
        connection.cancel(why)
