"""One connection to one broker: it sends requests in order without waiting; a correlation id names each response."""

import math
import struct
from collections import deque
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from fencepost.client.core.throttle import pause_ms
from fencepost.client.errors import (
    AuthenticationError,
    ConnectionLostError,
    FatalError,
    KafkaError,
    RetriableError,
    code_of,
)
from fencepost.client.network.frames import FRAMES
from fencepost.client.network.pending import Pending
from fencepost.client.network.wire import Wire
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_response_header, write_request_header
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import DecodeError, RequestValue, ResponseValue
from fencepost.version import __version__

R = TypeVar("R", bound=ResponseValue)
_SIZE = struct.Struct(">i")
_READ_BYTES = 64 << 10
_FAIRNESS = 16
SOFTWARE_NAME = "fencepost"
MOST_PENDING = 1000
"""The maximum number of unanswered requests on one connection. A correct program stays far below it."""
MOST_UNSENT_BYTES = 128 << 20
_MOST_BYTES_AT_FIRST = 1 << 20
"""The maximum size of a response before the broker is authenticated."""
_TLS_ALERT = b"\x15\x03"


class Connection:
    """A pipelined connection. `run` must be started in a task group before the first request.

    `versions`: API key -> (lowest, highest) that the broker supports; `features`: finalized feature -> level (KIP-584).
    """

    def __init__(
        self, wire: Wire, address: tuple[str, int], node: int | None, client_id: str, max_frame_bytes: int
    ) -> None:
        self._wire = wire
        self._socket = wire.socket
        self.address = address
        self.node = node
        self._client_id = client_id
        self._max_frame_bytes = max_frame_bytes
        self._next_correlation = 0
        self._pending: dict[int, Pending[Any]] = {}
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._held: deque[tuple[Pending[Any], list[memoryview]]] = deque()
        self._holds = 0
        self._to_send = anyio.Event()
        self.closed_because: str | None = None
        self.failure: KafkaError | None = None
        """The error that ended it, where another attempt would fail in the same way."""
        self.ended = anyio.Event()
        self.throttled_until = -math.inf
        """Until when, by the event loop's clock, the broker throttles this client."""
        self.last_used = anyio.current_time()
        self.responses = 0
        self.ready = False
        """Whether it is set up: both sides are authenticated, and the versions are known."""
        self.closed_by_broker = False
        """Whether the broker closed it."""
        self.has_answered = False
        """Whether a request got a response after the set-up."""
        self._reads = 0
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}

    @property
    def closed(self) -> bool:
        """Whether the connection has ended; it takes no more requests then."""
        return self.closed_because is not None

    @property
    def idle(self) -> bool:
        """Whether no task waits for a response."""
        now = anyio.current_time()
        return all(request.overdue(now) for request in self._pending.values())

    def close(self, reason: str, failure: KafkaError | None = None) -> None:
        """Close the connection; unanswered requests fail with `reason`. May be called again."""
        if self.closed_because is not None:
            return
        self.closed_because = reason
        self.failure = failure
        self._wire.close()
        self._unsent.clear()
        self._held.clear()
        self._to_send.set()
        self.ended.set()
        pending, self._pending = self._pending, {}
        for request in pending.values():
            request.lose(f"connection to {self.address[0]}:{self.address[1]} ended: {reason}", failure)

    def version_for(self, key: ApiKey, *, at_most: int = 1 << 15, at_least: int = 0) -> int:
        """The highest version that both sides support within the bounds. Raises FatalError when there is none.

        A version that Kafka may still change is used only if `at_least` requires it.
        """
        api = API_BY_KEY[key]
        low, high = self.versions.get(key, (0, -1))
        if at_least > api.served[1]:
            api = api.with_unstable()
        best = min(api.served[1], high, at_most)
        if best < max(low, api.served[0], at_least):
            speaks = f"supports {api.name} {low} to {high}" if high >= 0 else f"does not support {api.name}"
            raise FatalError(
                f"the broker {speaks}; needed is {max(api.served[0], at_least)} to {min(api.served[1], at_most)}",
                code=ErrorCode.UNSUPPORTED_VERSION,
                api=api.name,
                node=self.node,
            )
        return best

    def post(self, version: int, request: RequestValue[R], *, urgent: bool = False) -> Pending[R]:
        """Queue one request behind those already posted, without waiting.

        Raises ConnectionLostError if it is closed, or dead: an older request has had no response for too long.

        Raises RetriableError if too many requests are unanswered already. `urgent` overtakes those that are held back.
        """
        api = API_BY_KEY[request.api_key]
        if self.closed_because is not None:
            raise self.failure or ConnectionLostError(self.closed_because, sent=False, api=api.name, node=self.node)
        now = anyio.current_time()
        oldest = next(iter(self._pending.values()), None)
        if oldest is not None and oldest.overdue(now):
            # The task that sent it was cancelled, so no task was left to time out on this broker.
            self.close("no response in time")
            raise ConnectionLostError("no response in time", sent=False, api=api.name, node=self.node)
        if len(self._pending) >= MOST_PENDING or self._unsent_bytes > MOST_UNSENT_BYTES:
            raise RetriableError("too many requests or bytes wait for this broker", api=api.name, node=self.node)
        correlation = self._next_correlation
        self._next_correlation = (correlation + 1) & 0x7FFFFFFF
        body = api.request.encode(request, version)
        header = write_request_header(api, version, correlation, self._client_id)
        pending: Pending[R] = Pending(self, api, version)
        self._pending[correlation] = pending
        self.last_used = now
        parts = [memoryview(_SIZE.pack(len(header) + len(body)) + header), memoryview(body)]
        self._unsent_bytes += len(parts[0]) + len(body)
        if self._holds and not urgent:
            pending.sent = False
            self._held.append((pending, parts))
            return pending
        self._unsent.extend(parts)
        self._push()
        return pending

    def _push(self) -> None:
        """Send as much as possible at once, and leave the rest to `_write`."""
        try:
            done = self._send_some()
        except (OSError, AuthenticationError) as error:
            self._broke(error)
            return
        if not done:
            self._to_send.set()

    async def ask(
        self, request: RequestValue[R], timeout_s: float, *, version: int | None = None, urgent: bool = False
    ) -> R:
        """Post one request and wait for its response. Raises as `version_for` and `Pending.wait` do."""
        if version is None:
            version = self.version_for(request.api_key)
        return await self.post(version, request, urgent=urgent).wait(timeout_s)

    # -- holding requests back

    def rest(self, seconds: float) -> None:
        """Send nothing for `seconds`: the quota is used up, and the broker would not read either (KIP-219)."""
        until = anyio.current_time() + seconds
        if seconds <= 0 or until <= self.throttled_until or self.closed:
            return
        if self.throttled_until == -math.inf:
            self.hold()
        self.throttled_until = until
        self._to_send.set()

    def hold(self) -> None:
        """Hold back requests that are posted from now on, until `release`."""
        self._holds += 1

    def release(self) -> None:
        """Send the requests held back, once every `hold` is released."""
        self._holds -= 1
        if self._holds or self.closed:
            return
        while self._held:
            pending, parts = self._held.popleft()
            pending.sent = True
            self._unsent.extend(parts)
        self._push()

    def _send_some(self) -> bool:
        """Write what the socket accepts now; True when nothing is left. Raises OSError, AuthenticationError."""
        unsent = self._unsent
        while unsent:
            parts = [unsent[i] for i in range(min(len(unsent), 32))]
            try:
                sent = self._wire.send(parts)
            except (BlockingIOError, InterruptedError):
                return False
            self._unsent_bytes -= sent
            while sent:
                first = unsent[0]
                if sent >= len(first):
                    sent -= len(first)
                    unsent.popleft()
                else:
                    unsent[0] = first[sent:]
                    sent = 0
            while unsent and not len(unsent[0]):
                unsent.popleft()
        return self._wire.flush()

    async def run(self) -> None:
        """Read responses, and write requests that could not be sent at once, until the connection is closed."""
        try:
            async with anyio.create_task_group() as nursery:
                nursery.start_soon(self._write)
                await self._read()
                nursery.cancel_scope.cancel()
        finally:
            self.close("the client was closed")

    async def _write(self) -> None:
        while True:
            with anyio.CancelScope(deadline=math.inf if self.throttled_until == -math.inf else self.throttled_until):
                await self._to_send.wait()
            if self.closed:
                return
            if self.throttled_until != -math.inf and self.throttled_until <= anyio.current_time():
                self.throttled_until = -math.inf
                self.release()
            try:
                if self._send_some():
                    self._to_send = anyio.Event()
                else:
                    await anyio.wait_writable(self._socket)
            except anyio.ClosedResourceError:
                return
            except (OSError, AuthenticationError) as error:
                self._broke(error)

    def _broke(self, error: Exception) -> None:
        self.closed_by_broker = isinstance(error, ConnectionResetError | BrokenPipeError)
        self.close(str(error), error if isinstance(error, AuthenticationError) else None)

    async def _read(self) -> None:
        buffer = bytearray(_READ_BYTES)
        view = memoryview(buffer)
        filled = 0
        while True:
            count = await self._receive(view[filled:])
            if not count:
                return
            filled += count
            position = 0
            while filled - position >= _SIZE.size:
                (size,) = _SIZE.unpack_from(buffer, position)
                if not _SIZE.size <= size <= (self._max_frame_bytes if self.ready else _MOST_BYTES_AT_FIRST):
                    self._reject_frame(size, bytes(view[position : position + 2]))
                    return
                position += _SIZE.size
                here = min(size, filled - position)
                if here < size and size <= _READ_BYTES - _SIZE.size:
                    position -= _SIZE.size
                    break
                if not await self._take_frame(size, view[position : position + here]):
                    return
                position += here
            view[: filled - position] = bytes(view[position:filled])
            filled -= position

    async def _take_frame(self, size: int, begun: memoryview) -> bool:
        """Receive the rest of a frame, and give it to its request. False: the connection is closed."""
        frame = FRAMES.take(size)  # in its own function, so that no variable holds it while the next one is awaited
        here = len(begun)
        frame[:here] = begun
        if here < size and not await self._receive_all(frame[here:]):
            return False
        return self._arrived(frame)

    def _reject_frame(self, size: int, start: bytes) -> None:
        if start == _TLS_ALERT and not self.responses:
            reason = "this listener uses TLS: set security_protocol to 'ssl' or 'sasl_ssl'"
            self.close(reason, AuthenticationError(reason, node=self.node))
        else:
            self.close(f"the broker sent a frame of {size} bytes, which is not allowed")

    async def _receive_all(self, into: memoryview) -> bool:
        done = 0
        while done < len(into):
            count = await self._receive(into[done:])
            if not count:
                return False
            done += count
        return True

    async def _receive(self, into: memoryview) -> int:
        """Some bytes from the socket; 0 when the connection is closed by now."""
        while not self.closed:
            try:
                count = self._wire.recv_into(into)
            except (BlockingIOError, InterruptedError):
                try:
                    await anyio.wait_readable(self._socket)
                except anyio.ClosedResourceError:
                    return 0
                continue
            except (OSError, AuthenticationError) as error:
                self._broke(error)
                return 0
            if not count:
                self.closed_by_broker = True
                self.close("the broker closed the connection")
                return 0
            self._reads += 1
            if self._reads % _FAIRNESS == 0:
                await anyio.lowlevel.checkpoint()
            return count
        return 0

    def _arrived(self, frame: memoryview) -> bool:
        (correlation,) = _SIZE.unpack_from(frame, 0)
        pending = self._pending.pop(correlation, None)
        if pending is None:
            self.close(f"the broker sent a response with the unknown correlation id {correlation}")
            return False
        try:
            _, start = read_response_header(pending.api, pending.version, frame)
        except DecodeError as wrong:
            self.close(f"the broker sent a response whose header cannot be read: {wrong}")
            pending.lose(str(wrong), None)
            return False
        self.responses += 1
        self.has_answered = self.ready
        self.last_used = anyio.current_time()
        pending.arrive(frame, start)
        return True

    async def negotiate(self, timeout_s: float) -> None:
        """Fetch the broker's versions and features; an old broker gets a second request in v0 (KIP-511)."""
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        version = 3
        frame, start = await self.post(version, request).frame(timeout_s)
        if int.from_bytes(frame[start : start + 2], "big") == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
            response = await self.ask(request, timeout_s, version=version)
        else:
            try:
                response = ApiVersionsResponse.decode(frame, version, start)
            except DecodeError as wrong:
                raise KafkaError(f"this is not a Kafka broker: {wrong}", api="ApiVersions", node=self.node) from wrong
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(
                "the broker did not return its API versions",
                code=code_of(response.error_code),
                api="ApiVersions",
                node=self.node,
            )
        self.rest(pause_ms(ApiKey.API_VERSIONS, version, response.throttle_time_ms) / 1000)
        self.versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
        self.features = {entry.name: entry.max_version_level for entry in response.finalized_features}
