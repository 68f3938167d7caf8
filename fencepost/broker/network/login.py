"""Logins on a connection: what SASL's state machine decides, with the clock, the delay and the session's principal."""

import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import trio

from fencepost.broker.network.context import CloseConnection, Session
from fencepost.broker.network.frames import KEPT_BYTES, FrameBuffer
from fencepost.broker.network.response_queue import ResponseQueue
from fencepost.broker.network.tls import CertificateRefused, TlsListener
from fencepost.broker.ports import Broker
from fencepost.broker.security.audit import log_failed_login
from fencepost.broker.security.principal import CLUSTER, Principal
from fencepost.broker.security.sasl.exchange import FENCEPOST_CLUSTER, LoginRefused
from fencepost.broker.security.sasl.session import NotAdmitted, SaslSession, State, Step
from fencepost.coordinator.ports import Clock
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.registry import API_BY_KEY

Continuation = Coroutine[Any, Any, None]
RECEIVE_LIMIT = "sasl.server.max.receive.size"


class LoginServer(Protocol):
    """What a guard needs of the server."""

    @property
    def node(self) -> Broker: ...

    request_bytes_max: int

    def check_principal(self, principal: Principal) -> None:
        """Check a login, which has set the principal already. Raises CloseConnection over the bound."""


async def log_in_by_certificate(
    server: LoginServer,
    session: Session,
    tls: TlsListener,
    sock: socket.socket,
    replaced: Callable[[ssl.SSLSocket], None],
) -> None:
    """Make the TLS handshake. A client's certificate is its login, unless a login by SASL follows.

    See `TlsListener.handshake` for `replaced`, and for what is raised.
    """
    try:
        principal = await tls.handshake(sock, replaced)
    except CertificateRefused as error:
        log_failed_login(session, str(error))
        raise
    if principal is not None:
        session.log_in(principal, "certificate")
        server.check_principal(principal)


class LoginGuard:
    """Stands before the requests of a connection to a listener with SASL, while `session.guarded`.

    Before the login only ApiVersions, SaslHandshake and SaslAuthenticate pass, and frames are small. After it the guard
    ends the session (KIP-368), and passes all other requests at once.
    """

    __slots__ = ("_frames", "_responses", "_sasl", "_server", "_session")

    def __init__(self, session: Session, server: LoginServer, frames: FrameBuffer, responses: ResponseQueue) -> None:
        assert session.sasl is not None
        self._session = session
        self._sasl = session.sasl
        self._server = server
        self._frames = frames
        self._responses = responses
        frames.limit(session.sasl.receive_bytes_max, RECEIVE_LIMIT, KEPT_BYTES)

    def serve(self, frame: memoryview, serve: Callable[[memoryview], Continuation | None]) -> Continuation | None:
        """Serve a frame with `serve` if it is admitted. Raises CloseConnection."""
        sasl = self._sasl
        if sasl.expects_raw_token:
            return self._answer_token(bytes(frame))
        api_key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
        try:
            sasl.admit(api_key, self._server.node.clock.monotonic())
        except NotAdmitted as why:
            raise CloseConnection(str(why)) from None
        if sasl.state is State.LOGGED_IN and api_key != ApiKey.SASL_HANDSHAKE:
            return serve(frame)
        if api_key == ApiKey.API_VERSIONS and API_BY_KEY[api_key].serves(version):
            sasl.versions_sent()
        return self._log_in(serve(frame))

    async def _log_in(self, continuation: Continuation | None) -> None:
        """Finish a request of a login. After a refusal, the connection closes once the response is sent."""
        if continuation is not None:
            await continuation
        self._close_or_open()

    async def _answer_token(self, token: bytes) -> None:
        """Answer a token without a header, after SaslHandshake v0. A refusal has no answer."""
        try:
            step = await authenticate(self._session, token, self._server.node.clock)
        except LoginRefused:
            raise self._refused() from None
        self._responses.put_token(step.challenge)
        self._close_or_open()

    def _close_or_open(self) -> None:
        if self._sasl.state is State.FAILED:
            raise self._refused()
        if self._sasl.state is State.LOGGED_IN:
            self._server.check_principal(self._session.principal)
            self._frames.limit(self._server.request_bytes_max)

    def _refused(self) -> CloseConnection:
        log_refusal(self._session)
        return CloseConnection(self._sasl.why_failed)


async def authenticate(session: Session, message: bytes, clock: Clock) -> Step:
    """One step of a login. At its end the user is the session's principal.

    A refusal raises LoginRefused after `connection.failed.authentication.delay.ms`.
    """
    sasl = session.sasl
    assert sasl is not None, "only a listener with SASL has logins"
    try:
        step = sasl.authenticate(message, clock.now_ms(), clock.monotonic())
    except LoginRefused:
        await delay(sasl)
        raise
    if sasl.why_failed:
        log_refusal(session)  # here, because many clients close the connection now
    if sasl.state is State.LOGGED_IN:
        assert sasl.user is not None
        is_broker = sasl.mechanism == FENCEPOST_CLUSTER
        session.log_in(CLUSTER if is_broker else Principal("User", sasl.user), sasl.mechanism)
    session.guarded = sasl.needs_guard and session.security_protocol.sasl
    return step


def log_refusal(session: Session) -> None:
    """Log that the login was refused, once."""
    sasl = session.sasl
    assert sasl is not None, "only a listener with SASL has logins"
    if not sasl.failure_logged:
        sasl.failure_logged = True
        log_failed_login(session, sasl.why_failed)


async def delay(sasl: SaslSession) -> None:
    await trio.sleep(sasl.failure_delay_s)
