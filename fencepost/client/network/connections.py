"""The connections of one client: opened on demand, one for each broker and purpose, with pauses after failures."""

import math
import ssl
from collections.abc import Iterable

import anyio

from fencepost.client.background import Background
from fencepost.client.config import ClientConfig
from fencepost.client.core.partitioner import Random
from fencepost.client.errors import AuthenticationError, ConnectionLostError
from fencepost.client.network.authentication import authenticate, keep_authenticated
from fencepost.client.network.connection import Connection
from fencepost.client.network.diagnosis import security_protocol_of
from fencepost.client.network.retry import Backoff, RetryWarnings
from fencepost.client.network.wire import Dial, HandshakeEndedError, PlainWire, TlsWire, Wire

Address = tuple[str, int]
_SILENT_CLOSES = 2
"""After this many connections that the broker closed without a response, check the listener's security protocol."""
_SOON_S = 0.25


class Reach:
    """The connection attempts to one address: when to try again, and for how long."""

    __slots__ = ("_backoff", "_failures", "ever", "last", "retry_at", "silent_closes")

    def __init__(self, config: ClientConfig, random: Random) -> None:
        self._backoff = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, random)
        self._failures = 0
        self.retry_at = -math.inf
        self.ever = False
        """Whether a request there ever got a response after the set-up."""
        self.silent_closes = 0
        self.last = ""
        """The last error there, empty after a success."""

    def failed(self, reason: str) -> None:
        """A connection could not be opened, or ended before its first response (KIP-144)."""
        self.last = reason
        self._failures += 1
        self.retry_at = anyio.current_time() + self._backoff.next_delay()

    def worked(self) -> None:
        self._failures = 0
        self.silent_closes = 0
        self.ever = True
        self._backoff.reset()

    def setup_timeout_s(self, config: ClientConfig) -> float:
        """How long the set-up may take: more after each failure in a row (KIP-601)."""
        plain_ms = config.socket_connection_setup_timeout_ms * 2.0 ** min(self._failures, 20)
        most_ms = max(config.socket_connection_setup_timeout_max_ms, config.socket_connection_setup_timeout_ms)
        return min(plain_ms, most_ms) / 1000


class Connections:
    """Connections by address and purpose; they run in `background` and end with it."""

    def __init__(
        self,
        config: ClientConfig,
        background: Background,
        random: Random,
        dial: Dial,
        tls: ssl.SSLContext | None,
        warnings: RetryWarnings,
    ) -> None:
        self._config = config
        self._warnings = warnings
        self._background = background
        self._random = random
        self._dial = dial
        self._tls = tls
        self._open: dict[tuple[Address, str], Connection] = {}
        self._connecting: dict[tuple[Address, str], anyio.Lock] = {}
        self._reach: dict[Address, Reach] = {}
        self._watching = False

    def find(self, purpose: str) -> Connection | None:
        """An open connection to any broker."""
        for (_, other), connection in self._open.items():
            if other == purpose and not connection.closed:
                return connection
        return None

    def retry_at(self, address: Address) -> float:
        reach = self._reach.get(address)
        return -math.inf if reach is None else reach.retry_at

    async def get(self, address: Address, node: int | None, purpose: str) -> Connection:
        """The connection to a broker, opened if there is none; after a failure only once its pause is over.

        Raises ConnectionLostError(sent=False), AuthenticationError.
        """
        key = (address, purpose)
        found = self._open.get(key)
        if found is not None and not found.closed:
            if node is not None:
                found.node = node
            return found
        async with self._connecting.setdefault(key, anyio.Lock()):
            found = self._open.get(key)
            if found is not None and not found.closed:
                return found
            reach = self._reach.get(address)
            if reach is None:
                reach = self._reach[address] = Reach(self._config, self._random)
            if found is not None:
                del self._open[key]
                await self._note_end(found, reach)
            await self._pause(address, node, reach)
            made = await self._connect(address, node, reach)
            self._open[key] = made
        self._watch()
        return made

    async def _pause(self, address: Address, node: int | None, reach: Reach) -> None:
        """Wait until the next attempt, if that is soon; else raise the last error for a caller with a deadline."""
        due_s = reach.retry_at - anyio.current_time()
        await anyio.sleep(max(0.0, min(due_s, _SOON_S)))
        if due_s > _SOON_S:
            raise ConnectionLostError(
                f"{address[0]}:{address[1]}: {reach.last}; the next attempt is not due yet", sent=False, node=node
            )

    async def _note_end(self, ended: Connection, reach: Reach) -> None:
        """Note the end of a connection for its address. Raises AuthenticationError."""
        if ended.has_answered:
            reach.worked()
        elif ended.closed_by_broker:
            await self._closed_silently(reach, ended.address)

    async def _closed_silently(self, reach: Reach, address: Address) -> None:
        """The broker closed a connection without a response. Raises AuthenticationError if the protocol is wrong.

        The broker may also be down behind a proxy: then retries help.
        """
        reach.failed("the broker closed the connection without a response")
        reach.silent_closes += 1
        has_answered = any(other[0] == address and connection.has_answered for other, connection in self._open.items())
        if reach.ever or has_answered or reach.silent_closes < _SILENT_CLOSES:
            return
        reach.silent_closes = 0
        spoken = await security_protocol_of(self._dial, address, self._config.client_id)
        if spoken is not None and spoken != self._config.security_protocol:
            raise AuthenticationError(
                f"the listener {address[0]}:{address[1]} uses {spoken.upper()}, but security_protocol is"
                f" {self._config.security_protocol!r}"
            )

    async def _connect(self, address: Address, node: int | None, reach: Reach) -> Connection:
        timeout_s = reach.setup_timeout_s(self._config)
        try:
            with anyio.move_on_after(timeout_s):
                made = await self._set_up(address, node, timeout_s)
                if reach.last:
                    reach.last = ""
                    self._warnings.connected(f"{address[0]}:{address[1]}")
                return made
        except HandshakeEndedError:
            await self._closed_silently(reach, address)
            raise
        except ConnectionLostError as error:
            reach.failed(error.args[0].removeprefix(f"{address[0]}:{address[1]}: "))
            raise
        reach.failed(f"the connection was not set up within {timeout_s:g} s")
        raise ConnectionLostError(f"{address[0]}:{address[1]}: {reach.last}", sent=False, node=node)

    async def _set_up(self, address: Address, node: int | None, timeout_s: float) -> Connection:
        """Socket, TLS, versions, SASL. After any failure nothing stays open."""
        sock = await self._dial(*address, timeout_s)
        wire: Wire = PlainWire(sock)
        made: Connection | None = None
        try:
            if self._tls is not None:
                wire = tls = TlsWire(sock, self._tls, address[0])
                await _tls_handshake(tls, address, node)
            made = Connection(wire, address, node, self._config.client_id, self._config.receive_message_max_bytes)
            self._background.start_soon(made.run)
            await self._negotiate(made, timeout_s)
        except BaseException:
            if made is not None:
                made.close("the connection could not be set up")
            wire.close()
            raise
        made.session.ready = True
        return made

    async def _negotiate(self, made: Connection, timeout_s: float) -> None:
        try:
            await made.negotiate(timeout_s)
            if not self._config.sasl:
                return
            lifetime_s = await authenticate(made, self._config, timeout_s)
            await made.negotiate(timeout_s)  # a broker may return fewer APIs before authentication
        except ConnectionLostError as error:
            if made.closed_by_broker:
                where = f"{made.address[0]}:{made.address[1]}"
                raise HandshakeEndedError(f"{where}: the broker closed the connection before it was set up") from error
            raise
        if lifetime_s is not None:
            self._background.start_soon(
                keep_authenticated, made, self._config, lifetime_s, self._config.request_timeout_ms / 1000, self._random
            )

    # -- close

    def release(self, purpose: str) -> None:
        for key in [key for key in self._open if key[1] == purpose]:
            self._open.pop(key).close("the producer or consumer was closed")
        for key in [key for key in self._connecting if key[1] == purpose]:
            del self._connecting[key]

    def close(self, reason: str = "the client was closed") -> None:
        for connection in self._open.values():
            connection.close(reason)
        self._open.clear()

    def keep(self, addresses: Iterable[Address]) -> None:
        """Forget the attempts to other addresses, so that a cluster whose addresses change uses no more memory."""
        wanted = {*addresses, *self._config.bootstrap_servers, *(address for address, _ in self._open)}
        for address in [address for address in self._reach if address not in wanted]:
            del self._reach[address]

    def _watch(self) -> None:
        if not self._watching:
            self._watching = True
            self._background.start_soon(self._close_idle)

    async def _close_idle(self) -> None:
        """Close connections that were unused for `connections_max_idle`, before the broker does."""
        most_s = self._config.connections_max_idle_ms / 1000
        while self._open:
            oldest = min(connection.last_used for connection in self._open.values())
            await anyio.sleep_until(max(oldest + most_s, anyio.current_time() + most_s / 100))
            for key, connection in list(self._open.items()):
                if connection.idle and connection.last_used + most_s <= anyio.current_time():
                    connection.close("the connection was idle")
                    del self._open[key]
                    if connection.has_answered and key[0] in self._reach:
                        self._reach[key[0]].worked()
        self._watching = False


async def _tls_handshake(tls: TlsWire, address: Address, node: int | None) -> None:
    """TLS handshake; errors name the address. Raises AuthenticationError, HandshakeEndedError, ConnectionLostError."""
    where = f"{address[0]}:{address[1]}"
    try:
        await tls.handshake()
    except AuthenticationError as error:
        raise AuthenticationError(f"{where}: {error.args[0]}", node=node) from error
    except HandshakeEndedError as error:
        raise HandshakeEndedError(f"{where}: {error.args[0]}") from error
    except ConnectionResetError as error:
        raise HandshakeEndedError(f"{where}: reset during the TLS handshake") from error
    except OSError as error:
        raise ConnectionLostError(f"{where}: {error}", sent=False, node=node) from error
