"""Connections to the other brokers, over Kafka's port."""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import trio

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.config.listeners import ClientListener
from fencepost.broker.network.context import Endpoint
from fencepost.broker.peers.login import PeerLogins
from fencepost.broker.peers.peer import Peer, PeerUnavailable
from fencepost.broker.peers.plain_stream import PlainStream
from fencepost.broker.security.sasl.exchange import FENCEPOST_CLUSTER
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.sasl_login import log_in
from fencepost.protocol.schema import DecodeError
from fencepost.protocol.session import Refused, Sent, Session, SessionError, next_step

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 30.0
IDLE_MAX = 16
"""At most this many idle connections to one broker stay open."""
_MOST_BYTES = 1 << 30
_READ_BYTES = 4 << 10
_LOGIN_VERSIONS: dict[int, tuple[int, int]] = {ApiKey.SASL_HANDSHAKE: (1, 1), ApiKey.SASL_AUTHENTICATE: (2, 2)}
"""Brokers do not ask one another for versions: each request is in one that all of the cluster have."""


class Route(NamedTuple):
    """How to reach another broker."""

    endpoint: Endpoint
    tls: Callable[[], ssl.SSLContext] | None = None
    """Makes the context of a connection; it reads files. None: the listener has no TLS."""
    unix_address: str | bytes | None = None
    """Of the broker's socket on this machine; then the endpoint only names the broker."""


def route_to(config: BrokerConfig, peer: Peer) -> Route | None:
    """The way to a broker: its listener of `inter.broker.listener.name`, or the first one that both have."""
    wanted = config.inter_broker_listener_name
    for own in config.client_listeners:
        if own.name in peer.listeners and wanted in (None, own.name):
            tls = partial(_peer_context, own, config) if own.protocol.tls else None
            return Route(peer.listeners[own.name], tls)
    return None


def _peer_context(own: ClientListener, config: BrokerConfig) -> ssl.SSLContext:
    from fencepost.broker.config.tls_settings import tls_settings
    from fencepost.broker.security.tls_context import make_peer_context

    return make_peer_context(tls_settings(own, config))


async def open_unix_stream(address: str | bytes) -> trio.SocketStream:
    """A connection to a UNIX socket; the address may be an abstract one. Raises OSError."""
    sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        await sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return trio.SocketStream(sock)


class PeerLinks:
    """Asks other brokers. A connection carries one request at a time, and is kept for the next one."""

    def __init__(self, client_id: str, route_of: Callable[[int], Route | None], logins: PeerLogins) -> None:
        """`route_of` returns how to reach another broker; None if it is not known."""
        self._client_id = client_id
        self._route_of = route_of
        self._logins = logins
        self._idle: dict[Endpoint, list[_Link]] = {}

    async def ask(self, broker: int, request: Any, version: int) -> Any:
        """The answer of another broker. The request may be sent twice, if a kept connection turns out to be broken.

        Raises PeerUnavailable.
        """
        route = self._route_of(broker)
        if route is None:
            raise PeerUnavailable(f"broker {broker} is not known, or has no listener that this broker has, too")
        where = route.endpoint
        with trio.CancelScope(deadline=trio.current_time() + ANSWER_SECONDS):
            try:
                return await self._ask(route, request, version)
            except PeerUnavailable as error:
                raise PeerUnavailable(f"broker {broker} at {where}: {error}") from error
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise PeerUnavailable(
                    f"broker {broker} at {where.host}:{where.port} does not answer: {error}"
                ) from error
        raise PeerUnavailable(
            f"broker {broker} at {where.host}:{where.port} does not answer: no answer within {ANSWER_SECONDS:g} s"
        )

    async def _ask(self, route: Route, request: Any, version: int) -> Any:
        endpoint = route.endpoint
        kept = self._idle.get(endpoint)
        if kept:
            with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                return await self._exchange(endpoint, kept.pop(), request, version)
        with trio.move_on_after(CONNECT_SECONDS) as connecting:
            link = await self._open(route)
        if connecting.cancelled_caught:
            raise TimeoutError(f"no connection within {CONNECT_SECONDS:g} s")
        return await self._exchange(endpoint, link, request, version)

    async def _open(self, route: Route) -> "_Link":
        """A connection on which both sides have proved that they are brokers of this cluster."""
        if route.unix_address is None:
            opened = await trio.open_tcp_stream(*route.endpoint)
        else:
            opened = await open_unix_stream(route.unix_address)
        stream: trio.abc.Stream = PlainStream(opened)
        if route.tls is not None:
            stream = trio.SSLStream(
                stream, await trio.to_thread.run_sync(route.tls), server_hostname=route.endpoint.host
            )
        link = _Link(stream, self._client_id)
        try:
            await link.log_in(self._logins)
        except BaseException:
            link.close()
            raise
        return link

    async def _exchange(self, endpoint: Endpoint, link: "_Link", request: Any, version: int) -> Any:
        try:
            answer = await link.exchange(request, version)
        except BaseException:
            # The other broker has closed them all, most likely. If not, what is sent again must not overtake what was
            # sent over this one: a new connection has to log in first (`OnceRule` in docs/models.md).
            link.close()
            self.forget(endpoint)
            raise
        kept = self._idle.setdefault(endpoint, [])
        if len(kept) < IDLE_MAX:
            kept.append(link)
        else:
            link.close()
        return answer

    def forget(self, endpoint: Endpoint) -> None:
        for link in self._idle.pop(endpoint, ()):
            link.close()

    def close(self) -> None:
        for endpoint in list(self._idle):
            self.forget(endpoint)


class _Link:
    def __init__(self, stream: trio.abc.Stream, client_id: str) -> None:
        self._stream = stream
        self._session: Session[Sent] = Session(client_id, _MOST_BYTES, read_bytes=_READ_BYTES)
        self._session.versions.update(_LOGIN_VERSIONS)

    async def log_in(self, logins: PeerLogins) -> None:
        """Log in at the other broker. Raises PeerUnavailable if one of the two does not know the secret."""
        steps = log_in(self._session, FENCEPOST_CLUSTER, logins.own_exchange())
        try:
            step = next_step(steps)
            while step is not None:
                # A thread, because the proof takes a millisecond or more.
                step = await trio.to_thread.run_sync(next_step, steps, await self.exchange(*step))
        except Refused as refused:
            if refused.code is None:
                raise PeerUnavailable(f"the other side does not know the cluster's secret: {refused}") from None
            name = ErrorCode(refused.code).name
            raise PeerUnavailable(f"it refuses the login of this broker: {name}") from None
        self._session.ready = True

    async def exchange(self, request: Any, version: int) -> Any:
        """The answer to a request. Raises OSError and trio's errors of streams."""
        session = self._session
        await self._stream.send_all(b"".join(session.send(Sent(API_BY_KEY[request.api_key], version), request)))
        try:
            while (response := session.next_response()) is None:
                room = session.room()
                received = await self._stream.receive_some(len(room))
                if not received:
                    raise ConnectionResetError("the connection ended before the answer")
                room[: len(received)] = received
                session.received(len(received))
            return response.decode()
        except (SessionError, DecodeError) as error:
            raise ConnectionResetError(str(error)) from error

    def close(self) -> None:
        """End the connection at once."""
        stream = self._stream
        while isinstance(stream, trio.SSLStream):
            stream = stream.transport_stream
        assert isinstance(stream, PlainStream)
        stream.close()
