"""A blocking connection to one broker on a plain socket: Spark's Python workers run no trio."""

from __future__ import annotations

import socket
import struct
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_response_header, write_request_header
from fencepost.protocol.registry import API_BY_NAME, API_VERSIONS, Api
from fencepost.protocol.schema import DecodeError

MAX_FRAME_BYTES = 1 << 30
_FIRST_ROOM_BYTES = 1 << 20
_SIZE = struct.Struct(">i")
# Fetch 13 names topics by id only; positions in a checkpoint are kept by name.
_HIGHEST_VERSION = {"Fetch": 12}


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ConnectionSettings:
    """How to reach the cluster. `request_timeout_ms` bounds an answer, `api_timeout_ms` an operation with retries."""

    bootstrap: tuple[Address, ...]
    client_id: str = "fencepost-spark"
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    receive_buffer_bytes: int = 4 << 20


class BrokerError(Exception):
    """What the broker answered, or that it did not; `code` is the wire error."""

    def __init__(self, message: str, code: ErrorCode) -> None:
        super().__init__(f"{message} ({code.name})")
        self.code = code


class ConnectionLost(BrokerError):
    """The connection could not be made, ended, or stayed silent for too long; another attempt may do better."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(f"broker at {address}: {reason}", ErrorCode.NETWORK_EXCEPTION)


def code_of(number: int) -> ErrorCode:
    """The error code of a number on the wire; UNKNOWN_SERVER_ERROR for one that is not known here."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class Ticket(NamedTuple):
    """A request under way; its answer comes in the order of sending."""

    api: Api
    version: int
    correlation_id: int


class Connection:
    """One broker, several requests under way; not for use by more than one thread.

    The constructor connects and agrees on versions (ApiVersions, KIP-511). Every method raises ConnectionLost when the
    connection is of no more use, after which only `close` makes sense.
    """

    def __init__(self, address: Address, settings: ConnectionSettings) -> None:
        self.address = address
        self._client_id = settings.client_id
        self._correlation_id = 0
        self._waiting: deque[Ticket] = deque()
        self._versions: dict[int, tuple[int, int]] = {API_VERSIONS: (0, 4)}
        timeout_seconds = settings.request_timeout_ms / 1000
        try:
            self._socket = socket.create_connection(address, timeout_seconds)
        except OSError as error:
            raise ConnectionLost(address, f"no connection: {error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        try:
            self._agree_on_versions()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; what is under way gets no answer."""
        self._socket.close()

    def knows(self, name: str) -> bool:
        """Whether both sides speak the API `name` in some version."""
        return self._version_of(API_BY_NAME[name]) is not None

    def call(self, name: str, request: Any) -> Any:
        """Send a request and wait for its answer; nothing else may be under way."""
        return self.receive(self.send(name, request))

    def send(self, name: str, request: Any) -> Ticket:
        """Send a request in the highest version that both sides speak; BrokerError where there is none."""
        api = API_BY_NAME[name]
        version = self._version_of(api)
        if version is None:
            raise BrokerError(f"broker at {self.address} speaks no {name} that we know", ErrorCode.UNSUPPORTED_VERSION)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        ticket = Ticket(api, version, self._correlation_id)
        header = write_request_header(api, version, ticket.correlation_id, self._client_id)
        body = api.request.encode(request, version)
        try:
            self._socket.sendall(_SIZE.pack(len(header) + len(body)) + header + body)
        except OSError as error:
            raise ConnectionLost(self.address, f"sending {name}: {error}") from None
        self._waiting.append(ticket)
        return ticket

    def receive(self, ticket: Ticket) -> Any:
        """The answer to the oldest request under way, which must be `ticket`."""
        assert self._waiting, "nothing is under way"
        assert self._waiting[0] == ticket, "answers come in the order of the requests"
        try:
            frame = self._receive_frame()
            correlation_id, start = read_response_header(ticket.api, ticket.version, frame)
            if correlation_id != ticket.correlation_id:
                raise ConnectionLost(self.address, f"answer {correlation_id} where {ticket.correlation_id} was due")
            self._waiting.popleft()
            return self._decode(ticket, frame, start)
        except OSError as error:
            raise ConnectionLost(self.address, f"waiting for {ticket.api.name}: {error}") from None
        except DecodeError as error:
            raise ConnectionLost(self.address, f"an answer that can not be read: {error}") from error

    def _decode(self, ticket: Ticket, frame: bytearray, start: int) -> Any:
        if ticket.api.key == API_VERSIONS and ticket.version > 0:
            # A broker that does not know our version answers in version 0, with the error first.
            (error,) = struct.unpack_from(">h", frame, start)
            if error == ErrorCode.UNSUPPORTED_VERSION:
                return ticket.api.response.decode(frame, 0, start)
        return ticket.api.response.decode(frame, ticket.version, start)

    def _receive_frame(self) -> bytearray:
        head = bytearray(_SIZE.size)
        self._fill(memoryview(head))
        (size,) = _SIZE.unpack(head)
        if not 4 <= size <= MAX_FRAME_BYTES:
            raise ConnectionLost(self.address, f"an answer of {size} bytes")
        # Memory follows what arrives, not what is claimed.
        frame = bytearray(min(size, _FIRST_ROOM_BYTES))
        filled = 0
        while True:
            with memoryview(frame) as view:
                self._fill(view[filled:])
            filled = len(frame)
            if filled == size:
                return frame
            frame += bytes(min(size - filled, 3 * filled))

    def _fill(self, room: memoryview) -> None:
        with room:
            filled = 0
            while filled < len(room):
                count = self._socket.recv_into(room[filled:])
                if count == 0:
                    raise ConnectionLost(self.address, "closed by the broker")
                filled += count

    def _version_of(self, api: Api) -> int | None:
        if api.key not in self._versions:
            return None
        low, high = self._versions[api.key]
        version = min(high, api.served[1], _HIGHEST_VERSION.get(api.name, api.served[1]))
        return version if version >= max(low, api.served[0]) else None

    def _agree_on_versions(self) -> None:
        request = API_BY_NAME["ApiVersions"].request
        answer = self.call("ApiVersions", request(client_software_name="fencepost-spark", client_software_version="1"))
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            self._versions = {API_VERSIONS: (0, 0)}
            answer = self.call("ApiVersions", request())
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(f"broker at {self.address}: ApiVersions", code_of(answer.error_code))
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
