"""A blocking connection to one broker. Spark's Python workers do not run trio."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.client.errors import AuthenticationError, code_of
from fencepost.client.network.frames import FRAMES
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.registry import API_BY_KEY, API_BY_NAME, Api
from fencepost.protocol.schema import DecodeError
from fencepost.protocol.session import Refused, Sent, Session, SessionError, Steps, learn_versions, next_step
from fencepost.spark_connector.network.security import new_exchange, tls_transport

if TYPE_CHECKING:
    from fencepost.client.network.security import SecurityConfig
    from fencepost.spark_connector.network.tls import BlockingTls

MAX_FRAME_BYTES = 1 << 30
# Later versions name topics by id only, but a checkpoint holds positions by name.
_HIGHEST_VERSION = {"Fetch": 12, "OffsetCommit": 9}


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ConnectionSettings:
    """How to connect to the cluster. `security` None means a plain connection.

    `request_timeout_ms` limits the wait for one response, `api_timeout_ms` an operation with its retries.
    """

    bootstrap: tuple[Address, ...]
    client_id: str = "fencepost-spark"
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    receive_buffer_bytes: int = 4 << 20
    security: SecurityConfig | None = None


class BrokerError(Exception):
    """A request failed. `code` is the protocol's error code."""

    def __init__(self, message: str, code: ErrorCode) -> None:
        super().__init__(f"{message} ({code.name})")
        self.code = code


class PartitionGone(BrokerError):
    """A partition that was there when a query was planned is not there any more. Another plan goes without it."""


class ConnectionLostError(BrokerError):
    """The connection could not be made, was closed, or timed out. Another attempt may succeed."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(f"broker at {address}: {reason}", ErrorCode.NETWORK_EXCEPTION)


class NotTrustedError(BrokerError):
    """TLS or SASL failed: wrong certificate, mechanism, password or listener."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(f"broker at {address}: {reason}", ErrorCode.SASL_AUTHENTICATION_FAILED)


class Connection:
    """A connection to one broker with several requests in flight. Only one thread may use it.

    The constructor connects, negotiates versions (ApiVersions, KIP-511) and authenticates. It raises NotTrustedError if
    TLS or SASL fails. Every method raises ConnectionLostError if the connection breaks. After that only `close` works.
    """

    def __init__(self, address: Address, settings: ConnectionSettings) -> None:
        self.address = address
        self._session: Session[Sent] = Session(settings.client_id, MAX_FRAME_BYTES, FRAMES.take)
        self._renew_at: float | None = None
        self._transport = self._connect(settings)
        try:
            self._converse(learn_versions(self._session, "fencepost-spark", "1"))
            if settings.security is not None and settings.security.sasl:
                self._log_in(settings.security)
        except BaseException:
            self.close()
            raise
        self._session.ready = True

    def close(self) -> None:
        """Close the connection. Requests in flight get no response."""
        self._transport.close()

    @property
    def session_ends_soon(self) -> bool:
        """Whether its session (KIP-368) ends soon and no request is in flight: a new connection must replace it."""
        if self._renew_at is None or self._session.in_flight:
            return False
        return time.monotonic() >= self._renew_at

    def supports(self, name: str) -> bool:
        return self._version_of(API_BY_NAME[name]) is not None

    def call(self, name: str, request: Any) -> Any:
        """Send a request and return its response. No other request may be in flight."""
        return self.receive(self.send(name, request))

    def send(self, name: str, request: Any) -> Sent:
        """Send a request in the highest version that both sides support. Raises BrokerError if there is none."""
        api = API_BY_NAME[name]
        version = self._version_of(api)
        if version is None:
            raise BrokerError(
                f"broker at {self.address} supports no version of {name} that this client has",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        return self._send(Sent(api, version), request)

    def _send(self, sent: Sent, request: Any) -> Sent:
        with self._own_errors(f"sending {sent.api.name}"):
            self._transport.sendall(b"".join(self._session.send(sent, request)))
        return sent

    def receive(self, sent: Sent) -> Any:
        """The response to the oldest request in flight, which must be `sent`: responses arrive in their order."""
        session = self._session
        assert next(iter(session.in_flight.values()), None) is sent, "this is not the oldest request in flight"
        with self._own_errors(f"waiting for {sent.api.name}"):
            while (response := session.next_response()) is None:
                count = self._transport.recv_into(session.room())
                if count == 0:
                    raise ConnectionLostError(self.address, "closed by the broker")
                session.received(count)
            if response.sent is not sent:
                raise ConnectionLostError(self.address, "a response to another request than the oldest one")
            return response.decode()

    def _connect(self, settings: ConnectionSettings) -> socket.socket | BlockingTls:
        with self._own_errors("no connection"):
            sock = socket.create_connection(self.address, settings.request_timeout_ms / 1000)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
                if settings.security is None or not settings.security.tls:
                    return sock
                return tls_transport(sock, settings.security, self.address.host)
            except BaseException:
                sock.close()
                raise

    def _converse(self, steps: Steps) -> None:
        """Send each request of a conversation, and receive its response."""
        with self._own_errors("setting up"):
            step = next_step(steps)
            while step is not None:
                request, version = step
                sent = self._send(Sent(API_BY_KEY[request.api_key], version), request)
                step = next_step(steps, self.receive(sent))

    def _log_in(self, security: SecurityConfig) -> None:
        from fencepost.protocol.sasl_login import RENEW_AFTER, log_in

        began = time.monotonic()
        try:
            exchange = new_exchange(security)
        except AuthenticationError as error:  # what else a program's token provider raises is shown as it is
            raise NotTrustedError(self.address, str(error)) from None
        self._converse(log_in(self._session, security.sasl_mechanism or "", exchange))
        if self._session.lifetime_ms:
            self._renew_at = began + RENEW_AFTER * self._session.lifetime_ms / 1000

    @contextmanager
    def _own_errors(self, doing: str) -> Iterator[None]:
        """Raise the errors of socket, TLS and session as this module's."""
        try:
            yield
        except OSError as error:
            raise ConnectionLostError(self.address, f"{doing}: {error}") from None
        except AuthenticationError as error:
            raise NotTrustedError(self.address, str(error)) from None
        except Refused as refused:
            raise self._error_of(refused) from None
        except SessionError as error:
            raise ConnectionLostError(self.address, str(error)) from None
        except DecodeError as error:
            raise ConnectionLostError(self.address, f"a response that cannot be decoded: {error}") from error

    def _error_of(self, refused: Refused) -> BrokerError:
        if refused.api == "ApiVersions" and refused.code is not None:
            return BrokerError(f"broker at {self.address}: ApiVersions", code_of(refused.code))
        reason = str(refused)
        if refused.protocols:
            reason += f": set security.protocol to {' or '.join(name.upper() for name in refused.protocols)}"
        return NotTrustedError(self.address, reason)

    def _version_of(self, api: Api) -> int | None:
        try:
            return self._session.version_of(api, at_most=_HIGHEST_VERSION.get(api.name, api.served[1]))
        except Refused:
            return None
