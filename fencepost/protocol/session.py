"""The client's side of one connection to a broker, without I/O, in h11's manner: bytes in, responses out.

A shell sends what `send` returns, receives into `room`, gives the count to `received`, and takes responses from
`next_response` until there is none. Sockets, time, and closing belong to the shell; see `sasl_login.py` for logins.
"""

import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_response_header, write_request_header
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from fencepost.protocol.registry import Api
from fencepost.protocol.schema import DecodeError, RequestValue

READ_BYTES = 64 << 10
MOST_BYTES_AT_FIRST = 1 << 20
"""The maximum size of a response before both sides are authenticated."""
ALLOCATED_AT_ONCE_BYTES = 64 << 20
"""Larger responses get their memory as bytes arrive: the announced size may be wrong. Usual ones are never copied."""
VERSIONS_VERSION = 3
"""ApiVersions is sent in this version first (KIP-511)."""
_SIZE = struct.Struct(">i")
_TLS_ALERT = b"\x15\x03"


class SessionError(Exception):
    """The connection is of no use and must be closed: the broker sent what is no response to any request of it."""


class Refused(SessionError):
    """Another attempt fails in the same way, unless `code`, the broker's error code, is retriable.

    `protocols` are the values of security.protocol that suit the listener, if the present one does not.
    """

    def __init__(
        self,
        reason: str,
        *,
        code: int | None = None,
        api: str | None = None,
        broker_message: str | None = None,
        protocols: tuple[str, ...] = (),
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.api = api
        self.broker_message = broker_message
        self.protocols = protocols


@dataclass(slots=True, eq=False)
class Sent:
    """A request that was sent. A shell may add to it what it needs to find who waits."""

    api: Api
    version: int


S = TypeVar("S", bound=Sent)


class Response(NamedTuple, Generic[S]):
    """A response frame, with the request that it belongs to, and the position of its body."""

    sent: S
    frame: memoryview
    start: int

    def decode(self) -> Any:
        """The message. Raises DecodeError."""
        return decode(self.sent, self.frame, self.start)


def decode(sent: Sent, frame: memoryview, start: int) -> Any:
    """The message of a response. Raises DecodeError."""
    version = sent.version
    if sent.api.key == ApiKey.API_VERSIONS and frame[start : start + 2] == _UNSUPPORTED:
        version = 0  # a broker that does not know the version of the request responds in this one (KIP-511)
    return sent.api.response.decode(frame, version, start)


_UNSUPPORTED = struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)


def _fresh(size: int) -> memoryview:
    return memoryview(bytearray(size))


class Session(Generic[S]):
    """Frames, correlation ids and versions of one connection.

    `most_frame_bytes` limits responses once `ready` is set. `allocate` makes the memory that a response stays in.
    """

    def __init__(
        self,
        client_id: str,
        most_frame_bytes: int,
        allocate: Callable[[int], memoryview] = _fresh,
        read_bytes: int = READ_BYTES,
    ) -> None:
        self._client_id = client_id
        self._most_frame_bytes = most_frame_bytes
        self._allocate = allocate
        self._next_correlation = 0
        self._buffer = memoryview(bytearray(read_bytes))
        self._position = self._filled = 0
        self._frame: memoryview | None = None
        """A frame that is larger than the buffer, `_got` bytes of `_size` so far."""
        self._got = self._size = 0
        self.in_flight: dict[int, S] = {}
        """The requests without a response, by correlation id, the oldest first."""
        self.ready = False
        """Set by the shell when the set-up is complete: versions are known, both sides are authenticated."""
        self.responses = 0
        self.versions: dict[int, tuple[int, int]] = {}
        """API key -> (lowest, highest) version that the broker supports."""
        self.features: dict[str, int] = {}
        """Finalized feature -> level (KIP-584)."""
        self.lifetime_ms = 0
        """How long the present login holds (KIP-368); 0: it does not expire."""

    # -- requests

    def version_of(self, api: Api, at_least: int = 0, at_most: int = 1 << 15) -> int:
        """The highest version that both sides support within the bounds. Raises Refused if there is none.

        A version that Kafka may still change is used only if `at_least` requires it.
        """
        low, high = self.versions.get(api.key, (0, -1))
        if at_least > api.served[1]:
            api = api.with_unstable()
        best = min(api.served[1], high, at_most)
        if best < max(low, api.served[0], at_least):
            speaks = f"supports {api.name} {low} to {high}" if high >= 0 else f"does not support {api.name}"
            needed = f"needed is {max(api.served[0], at_least)} to {min(api.served[1], at_most)}"
            raise Refused(f"the broker {speaks}; {needed}", code=ErrorCode.UNSUPPORTED_VERSION, api=api.name)
        return best

    def send(self, sent: S, request: RequestValue[Any]) -> tuple[bytes, bytes]:
        """The bytes of a request, in two parts. `sent` comes back with its response."""
        correlation = self._next_correlation
        self._next_correlation = (correlation + 1) & 0x7FFFFFFF
        body = sent.api.request.encode(request, sent.version)
        header = write_request_header(sent.api, sent.version, correlation, self._client_id)
        self.in_flight[correlation] = sent
        return _SIZE.pack(len(header) + len(body)) + header, body

    # -- responses

    def room(self) -> memoryview:
        """Where the next bytes are to be received; never empty."""
        frame = self._frame
        if frame is None:
            rest = self._filled - self._position
            if self._position:
                self._buffer[:rest] = bytes(self._buffer[self._position : self._filled])
                self._position, self._filled = 0, rest
            return self._buffer[rest:]
        if self._got == len(frame):
            larger = self._allocate(min(self._size, 4 * self._got))
            larger[: self._got] = frame
            self._frame = frame = larger
        return frame[self._got :]

    def received(self, count: int) -> None:
        """`count` bytes were received into `room`."""
        if self._frame is None:
            self._filled += count
        else:
            self._got += count

    def next_response(self) -> Response[S] | None:
        """The next complete response; None if more bytes must be received first. Raises SessionError."""
        if self._frame is None:
            if not self._begin_frame():
                return None
            assert self._frame is not None
        if self._got < self._size:
            return None
        frame, self._frame = self._frame, None
        return self._matched(frame)

    def _begin_frame(self) -> bool:
        """Move a frame out of the buffer: a complete one, or the beginning of one that does not fit into it."""
        start, have = self._position + _SIZE.size, self._filled - self._position - _SIZE.size
        if have < 0:
            return False
        (size,) = _SIZE.unpack_from(self._buffer, self._position)
        if not _SIZE.size <= size <= (self._most_frame_bytes if self.ready else MOST_BYTES_AT_FIRST):
            if self._buffer[self._position : start - 2] == _TLS_ALERT and not self.responses:
                raise Refused("this listener uses TLS", protocols=("ssl", "sasl_ssl"))
            raise SessionError(f"the broker sent a frame of {size} bytes, which is not allowed")
        if have < size <= len(self._buffer) - _SIZE.size:
            return False
        here = min(size, have)
        frame = self._allocate(min(size, ALLOCATED_AT_ONCE_BYTES))
        frame[:here] = self._buffer[start : start + here]
        self._position = start + here
        self._frame, self._got, self._size = frame, here, size
        return True

    def _matched(self, frame: memoryview) -> Response[S]:
        (correlation,) = _SIZE.unpack_from(frame, 0)
        sent = self.in_flight.get(correlation)
        if sent is None:
            raise SessionError(f"the broker sent a response with the unknown correlation id {correlation}")
        try:
            _, start = read_response_header(sent.api, sent.version, frame)
        except DecodeError as wrong:
            raise SessionError(f"the broker sent a response whose header cannot be read: {wrong}") from None
        del self.in_flight[correlation]
        self.responses += 1
        return Response(sent, frame, start)


Steps = Generator[tuple[RequestValue[Any], int], Any, None]
"""A conversation: yields each request with its version, and is sent the response. Raises Refused."""


def next_step(steps: Steps, response: Any = None) -> tuple[RequestValue[Any], int] | None:
    """The next request after a response, or the first one; None at the end. Raises Refused."""
    try:
        return steps.send(response)
    except StopIteration:
        return None


def learn_versions(session: Session[Any], software: str, software_version: str) -> Steps:
    """Ask for the broker's versions and features; a broker that does not know this version is asked in v0 (KIP-511)."""
    request = ApiVersionsRequest(client_software_name=software, client_software_version=software_version)
    response = yield request, VERSIONS_VERSION
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        response = yield request, 0
    if response.error_code != ErrorCode.NONE:
        raise Refused("the broker did not return its API versions", code=response.error_code, api="ApiVersions")
    session.versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    session.features = {entry.name: entry.max_version_level for entry in response.finalized_features}
