"""A blocking connection to one broker. Spark's Python workers do not run trio."""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.client.errors import code_of
from fencepost.client.network.frames import FRAMES
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_response_header, write_request_header
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from fencepost.protocol.registry import API_BY_NAME, Api
from fencepost.protocol.schema import DecodeError
from fencepost.spark_connector.network.security import (
    PlainTransport,
    SecurityError,
    Transport,
    authenticate,
    tls_transport,
)

if TYPE_CHECKING:
    from fencepost.client.network.security import SecurityConfig

MAX_FRAME_BYTES = 1 << 30
_ALLOCATED_AT_ONCE_BYTES = 8 << 20
_SIZE = struct.Struct(">i")
_TLS_ALERT = b"\x15\x03"
_RENEWAL_SHARE = 0.85
"""The share of a session's lifetime after which its connection is replaced, as in Kafka's own client."""
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


class Ticket(NamedTuple):
    """A request in flight. Responses arrive in the order of the requests."""

    api: Api
    version: int
    correlation_id: int


class Connection:
    """A connection to one broker with several requests in flight. Only one thread may use it.

    The constructor connects, negotiates versions (ApiVersions, KIP-511) and authenticates. It raises NotTrustedError if
    TLS or SASL fails. Every method raises ConnectionLostError if the connection breaks. After that only `close` works.
    """

    def __init__(self, address: Address, settings: ConnectionSettings) -> None:
        self.address = address
        self._client_id = settings.client_id
        self._correlation_id = 0
        self._in_flight: deque[Ticket] = deque()
        self._versions: dict[int, tuple[int, int]] = {ApiKey.API_VERSIONS: (0, 4)}
        self._renew_at: float | None = None
        self._transport = self._connect(settings)
        try:
            self._negotiate_versions()
            if settings.security is not None and settings.security.sasl:
                self._authenticate(settings.security)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection. Requests in flight get no response."""
        self._transport.close()

    @property
    def session_ends_soon(self) -> bool:
        """Whether its session (KIP-368) ends soon and no request is in flight: a new connection must replace it."""
        return self._renew_at is not None and not self._in_flight and time.monotonic() >= self._renew_at

    def supports(self, name: str) -> bool:
        """Whether both sides support some version of the API `name`."""
        return self._version_of(API_BY_NAME[name]) is not None

    def call(self, name: str, request: Any) -> Any:
        """Send a request and return its response. No other request may be in flight."""
        return self.receive(self.send(name, request))

    def send(self, name: str, request: Any) -> Ticket:
        """Send a request in the highest version that both sides support. Raises BrokerError if there is none."""
        api = API_BY_NAME[name]
        version = self._version_of(api)
        if version is None:
            raise BrokerError(
                f"broker at {self.address} supports no version of {name} that this client has",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        ticket = Ticket(api, version, self._correlation_id)
        header = write_request_header(api, version, ticket.correlation_id, self._client_id)
        body = api.request.encode(request, version)
        try:
            self._transport.send_all(_SIZE.pack(len(header) + len(body)) + header + body)
        except OSError as error:
            raise ConnectionLostError(self.address, f"sending {name}: {error}") from None
        except SecurityError as error:
            raise NotTrustedError(self.address, str(error)) from None
        self._in_flight.append(ticket)
        return ticket

    def receive(self, ticket: Ticket) -> Any:
        """The response to the oldest request in flight, which must be `ticket`."""
        assert self._in_flight, "no request is in flight"
        assert self._in_flight[0] == ticket, "responses arrive in the order of the requests"
        try:
            frame = self._receive_frame()
            correlation_id, start = read_response_header(ticket.api, ticket.version, frame)
            if correlation_id != ticket.correlation_id:
                raise ConnectionLostError(
                    self.address, f"response {correlation_id} where {ticket.correlation_id} was expected"
                )
            self._in_flight.popleft()
            return self._decode(ticket, frame, start)
        except OSError as error:
            raise ConnectionLostError(self.address, f"waiting for {ticket.api.name}: {error}") from None
        except SecurityError as error:
            raise NotTrustedError(self.address, str(error)) from None
        except DecodeError as error:
            raise ConnectionLostError(self.address, f"a response that cannot be decoded: {error}") from error

    def _connect(self, settings: ConnectionSettings) -> Transport:
        try:
            sock = socket.create_connection(self.address, settings.request_timeout_ms / 1000)
        except OSError as error:
            raise ConnectionLostError(self.address, f"no connection: {error}") from None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
            if settings.security is None or not settings.security.tls:
                return PlainTransport(sock)
            return tls_transport(sock, settings.security, self.address.host)
        except OSError as error:
            sock.close()
            raise ConnectionLostError(self.address, f"no connection: {error}") from None
        except SecurityError as error:
            sock.close()
            raise NotTrustedError(self.address, str(error)) from None

    def _authenticate(self, security: SecurityConfig) -> None:
        began = time.monotonic()
        try:
            ends_at = authenticate(self, security)
        except SecurityError as error:
            raise NotTrustedError(self.address, str(error)) from None
        if ends_at is not None:
            self._renew_at = began + _RENEWAL_SHARE * (ends_at - began)

    def _decode(self, ticket: Ticket, frame: memoryview, start: int) -> Any:
        if ticket.api.key == ApiKey.API_VERSIONS and ticket.version > 0:
            # A broker that does not support this version responds in version 0, which starts with the error.
            (error,) = struct.unpack_from(">h", frame, start)
            if error == ErrorCode.UNSUPPORTED_VERSION:
                return ticket.api.response.decode(frame, 0, start)
        return ticket.api.response.decode(frame, ticket.version, start)

    def _receive_frame(self) -> memoryview:
        head = bytearray(_SIZE.size)
        self._fill(memoryview(head))
        (size,) = _SIZE.unpack(head)
        if head.startswith(_TLS_ALERT):
            raise NotTrustedError(self.address, "this listener uses TLS: set security.protocol to SSL or SASL_SSL")
        if not 4 <= size <= MAX_FRAME_BYTES:
            raise ConnectionLostError(self.address, f"a response of {size} bytes")
        if size <= _ALLOCATED_AT_ONCE_BYTES:
            # The memory of large responses is reused once no array refers to it.
            buffer = FRAMES.take(size)
            self._fill(buffer[:])
            return buffer
        # Allocate memory as bytes arrive: the announced size may be wrong.
        frame = bytearray(_ALLOCATED_AT_ONCE_BYTES)
        filled = 0
        while True:
            with memoryview(frame) as view:
                self._fill(view[filled:])
            filled = len(frame)
            if filled == size:
                return memoryview(frame)
            frame += bytes(min(size - filled, 3 * filled))

    def _fill(self, buffer: memoryview) -> None:
        with buffer:
            filled = 0
            while filled < len(buffer):
                count = self._transport.recv_into(buffer[filled:])
                if count == 0:
                    raise ConnectionLostError(self.address, "closed by the broker")
                filled += count

    def _version_of(self, api: Api) -> int | None:
        if api.key not in self._versions:
            return None
        low, high = self._versions[api.key]
        version = min(high, api.served[1], _HIGHEST_VERSION.get(api.name, api.served[1]))
        return version if version >= max(low, api.served[0]) else None

    def _negotiate_versions(self) -> None:
        request = ApiVersionsRequest(client_software_name="fencepost-spark", client_software_version="1")
        response = self.call("ApiVersions", request)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            self._versions = {ApiKey.API_VERSIONS: (0, 0)}
            response = self.call("ApiVersions", ApiVersionsRequest())
        if response.error_code != ErrorCode.NONE:
            raise BrokerError(f"broker at {self.address}: ApiVersions", code_of(response.error_code))
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
