"""One connection to one broker: requests go out in order without waiting, answers come back by correlation id."""

import errno
import os
import socket
import struct
from collections import deque
from typing import Any

import trio

from fencepost.client.errors import ConnectionLost, FatalError, KafkaError, code_of
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_response_header, write_request_header
from fencepost.protocol.registry import API_BY_KEY, Api
from fencepost.protocol.schema import DecodeError

_SIZE = struct.Struct(">i")
_READ_BYTES = 64 << 10
_FAIRNESS = 16
_API_VERSIONS = API_BY_KEY[18]
SOFTWARE_NAME = "fencepost"


class Pending:
    """A request that was handed to the socket and is not answered yet."""

    __slots__ = ("_answered", "_connection", "_frame", "_lost", "api", "version")

    def __init__(self, connection: "Connection", api: Api, version: int) -> None:
        self._connection = connection
        self.api = api
        self.version = version
        self._answered = trio.Event()
        self._frame: tuple[memoryview, int] | None = None
        self._lost: ConnectionLost | None = None

    def arrive(self, frame: memoryview, body_start: int) -> None:
        """The reader found the answer."""
        self._frame = (frame, body_start)
        self._answered.set()

    def lose(self, why: str) -> None:
        """The connection ended first."""
        self._lost = ConnectionLost(why, sent=True, api=self.api.name, node=self._connection.node)
        self._answered.set()

    async def frame(self, timeout_s: float) -> tuple[memoryview, int]:
        """The answer as bytes, and where its body begins.

        Raises ConnectionLost (with `sent`) when the connection ends first or `timeout_s` passes; the latter closes
        the connection, because whatever is behind the missing answer would be late, too.
        """
        with trio.move_on_after(timeout_s):
            await self._answered.wait()
        if self._lost is not None:
            raise self._lost
        if self._frame is None:
            why = f"no answer within {timeout_s:g} s"
            self._connection.close(why)
            raise ConnectionLost(why, sent=True, api=self.api.name, node=self._connection.node)
        return self._frame

    async def wait(self, timeout_s: float) -> Any:
        """The decoded answer; raises as `frame` does, and KafkaError where the bytes make no sense."""
        frame, start = await self.frame(timeout_s)
        try:
            return self.api.response.decode(frame, self.version, start)
        except DecodeError as wrong:
            self._connection.close(f"an answer that can not be read: {wrong}")
            raise KafkaError(
                f"the answer can not be read: {wrong}", api=self.api.name, node=self._connection.node
            ) from wrong


class Connection:
    """A pipelined connection. `run` must be started in a nursery before anything is asked.

    `versions`: API key -> (lowest, highest) that the broker speaks; `features`: finalized feature -> level (KIP-584).
    """

    def __init__(
        self, sock: socket.socket, address: tuple[str, int], node: int | None, client_id: str, max_frame_bytes: int
    ) -> None:
        self._socket = sock
        self.address = address
        self.node = node
        self._client_id = client_id
        self._max_frame_bytes = max_frame_bytes
        self._next_correlation = 0
        self._pending: dict[int, Pending] = {}
        self._unsent: deque[memoryview] = deque()
        self._to_send = trio.Event()
        self.closed_because: str | None = None
        self._reads = 0
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}

    @property
    def closed(self) -> bool:
        """Whether the connection has ended; nothing more can be asked then."""
        return self.closed_because is not None

    def close(self, why: str) -> None:
        """End the connection; requests without an answer fail with `why`. May be called again."""
        if self.closed_because is not None:
            return
        self.closed_because = why
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()
        self._unsent.clear()
        self._to_send.set()
        pending, self._pending = self._pending, {}
        for request in pending.values():
            request.lose(f"connection to {self.address[0]}:{self.address[1]} ended: {why}")

    def version_for(self, api: Api, *, at_most: int = 1 << 15, at_least: int = 0) -> int:
        """The highest version both sides speak within the bounds. Raises FatalError when there is none.

        One that Kafka may still change is taken only where `at_least` asks for it.
        """
        low, high = self.versions.get(api.key, (0, -1))
        if at_least > api.served[1]:
            api = api.with_unstable()
        best = min(api.served[1], high, at_most)
        if best < max(low, api.served[0], at_least):
            raise FatalError(
                f"the broker speaks {api.name} {low}..{high}, needed is"
                f" {max(api.served[0], at_least)}..{min(api.served[1], at_most)}",
                code=ErrorCode.UNSUPPORTED_VERSION,
                api=api.name,
                node=self.node,
            )
        return best

    def post(self, api: Api, version: int, request: Any) -> Pending:
        """Queue one request behind those already posted, without waiting. Raises ConnectionLost if closed."""
        if self.closed_because is not None:
            raise ConnectionLost(self.closed_because, sent=False, api=api.name, node=self.node)
        correlation = self._next_correlation
        self._next_correlation = (correlation + 1) & 0x7FFFFFFF
        body = api.request.encode(request, version)
        header = write_request_header(api, version, correlation, self._client_id)
        pending = self._pending[correlation] = Pending(self, api, version)
        self._unsent.append(memoryview(_SIZE.pack(len(header) + len(body)) + header))
        self._unsent.append(memoryview(body))
        try:
            self._send_some()
        except OSError as error:
            self.close(str(error))
        if self._unsent:
            self._to_send.set()
        return pending

    async def ask(self, api: Api, version: int, request: Any, timeout_s: float) -> Any:
        """Post one request and wait for its answer; see `Pending.wait` for what is raised."""
        return await self.post(api, version, request).wait(timeout_s)

    def _send_some(self) -> bool:
        """Write what the socket takes now; True when nothing is left. Raises OSError."""
        unsent = self._unsent
        while unsent:
            parts = [unsent[i] for i in range(min(len(unsent), 32))]
            try:
                sent = self._socket.sendmsg(parts)
            except (BlockingIOError, InterruptedError):
                return False
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
        return True

    async def run(self) -> None:
        """Read answers and write what did not fit at once, until the connection is closed."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                await self._read()
                nursery.cancel_scope.cancel()
        finally:
            self.close("the client was closed")

    async def _write(self) -> None:
        while True:
            await self._to_send.wait()
            if self.closed:
                return
            try:
                if self._send_some():
                    self._to_send = trio.Event()
                else:
                    await trio.lowlevel.wait_writable(self._socket)
            except trio.ClosedResourceError:
                return
            except OSError as error:
                self.close(str(error))

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
                if not _SIZE.size <= size <= self._max_frame_bytes:
                    self.close(f"a frame of {size} bytes")
                    return
                position += _SIZE.size
                here = min(size, filled - position)
                if here < size and size <= _READ_BYTES - _SIZE.size:
                    position -= _SIZE.size
                    break
                frame = bytearray(size)
                frame[:here] = view[position : position + here]
                position += here
                if here < size and not await self._receive_all(memoryview(frame)[here:]):
                    return
                if not self._arrived(memoryview(frame)):
                    return
            view[: filled - position] = bytes(view[position:filled])
            filled -= position

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
                count = self._socket.recv_into(into)
            except (BlockingIOError, InterruptedError):
                try:
                    await trio.lowlevel.wait_readable(self._socket)
                except trio.ClosedResourceError:
                    return 0
                continue
            except OSError as error:
                self.close(str(error))
                return 0
            if not count:
                self.close("the broker closed it")
                return 0
            self._reads += 1
            if self._reads % _FAIRNESS == 0:
                await trio.lowlevel.checkpoint()
            return count
        return 0

    def _arrived(self, frame: memoryview) -> bool:
        (correlation,) = _SIZE.unpack_from(frame, 0)
        pending = self._pending.pop(correlation, None)
        if pending is None:
            self.close(f"an answer with the unknown correlation id {correlation}")
            return False
        try:
            _, start = read_response_header(pending.api, pending.version, frame)
        except DecodeError as wrong:
            self.close(f"an answer whose header can not be read: {wrong}")
            pending.lose(str(wrong))
            return False
        pending.arrive(frame, start)
        return True

    async def negotiate(self, timeout_s: float) -> None:
        """Learn the broker's versions and features; an old broker is asked again in v0 (KIP-511)."""
        request = _API_VERSIONS.request(client_software_name=SOFTWARE_NAME, client_software_version=_software_version())
        version = min(3, _API_VERSIONS.served[1])
        frame, start = await self.post(_API_VERSIONS, version, request).frame(timeout_s)
        if int.from_bytes(frame[start : start + 2], "big") == ErrorCode.UNSUPPORTED_VERSION:
            answer = await self.ask(_API_VERSIONS, 0, request, timeout_s)
        else:
            answer = _API_VERSIONS.response.decode(frame, version, start)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(
                "the broker does not tell its versions",
                code=code_of(answer.error_code),
                api="ApiVersions",
                node=self.node,
            )
        self.versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
        self.features = {entry.name: entry.max_version_level for entry in answer.finalized_features}


async def open_socket(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connected, non-blocking TCP socket; each address of `host` is tried. Raises ConnectionLost(sent=False)."""
    where = f"{host}:{port}"
    last: OSError = OSError(errno.EHOSTUNREACH, "no address")
    with trio.move_on_after(timeout_s):
        try:
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ConnectionLost(f"{where}: {error}", sent=False) from error
        for family, kind, protocol, _, address in found:
            sock = socket.socket(family, kind, protocol)
            try:
                await _connect(sock, address)
            except OSError as error:
                sock.close()
                last = error
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise ConnectionLost(f"{where}: {last}", sent=False) from last
    raise ConnectionLost(f"{where}: no connection within {timeout_s:g} s", sent=False)


async def _connect(sock: socket.socket, address: Any) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    code = sock.connect_ex(address)
    if code == errno.EINPROGRESS:
        await trio.lowlevel.wait_writable(sock)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


def _software_version() -> str:
    from fencepost import __version__  # here: the package's root imports this package lazily

    return __version__
