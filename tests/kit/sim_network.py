"""A network in memory between clients and one broker: it delays, cuts, holds back and repeats whole Kafka frames.

The broker's end of a connection is a socket of a socket pair, and so is the end of a true client: their true code runs
on them. What becomes of a frame says the `Weather`; nothing here is random by itself.
"""

import errno
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import trio

from fencepost.broker.network.context import Endpoint
from fencepost.broker.network.server import Server
from fencepost.client.errors import ConnectionLostError
from fencepost.protocol.headers import read_request_header, read_response_header, write_request_header
from fencepost.protocol.registry import API_BY_KEY, API_BY_NAME
from tests.kit.determinism import nap

HERE = Endpoint("sim", 9092)
"""Where the broker of a simulated network is."""
_SIZE = struct.Struct(">i")
_READ_BYTES = 64 << 10


class Request(NamedTuple):
    """One request on its way, as far as the network understands it."""

    link: int
    """The number of its connection."""
    client_id: str | None
    api_key: int
    api_version: int
    data: bytes
    """The frame, its length in front."""

    @property
    def name(self) -> str:
        """What is asked, as people say it."""
        return f"{API_BY_KEY[self.api_key].name} v{self.api_version}"


@dataclass(frozen=True)
class Fate:
    """What becomes of one frame: by default it arrives, `delay_seconds` later.

    `cut`: the connection ends, "before" the frame has arrived (it is lost, but for a copy) or "after" (whatever is
    answered is lost). `copy_seconds`: a copy arrives by a connection of its own so much later, and nobody hears what
    is answered to it; with `cut` "before" that is a request which was held back until its sender had given it up.
    """

    delay_seconds: float = 0.0
    cut: str | None = None
    copy_seconds: float | None = None


class Weather(Protocol):
    """Decides what becomes of frames and connections."""

    def dial(self, client_id: str) -> Fate:
        """A connection is being made; any `cut` means that it is refused."""
        ...

    def request(self, request: Request) -> Fate:
        """A request left its client."""
        ...

    def answer(self, request: Request) -> Fate:
        """The broker answered this request."""
        ...


class ClearWeather:
    """Everything arrives, after the same time."""

    def __init__(self, delay_seconds: float = 0.001) -> None:
        self._fate = Fate(delay_seconds)

    def dial(self, client_id: str) -> Fate:
        """After the delay."""
        return self._fate

    def request(self, request: Request) -> Fate:
        """After the delay."""
        return self._fate

    def answer(self, request: Request) -> Fate:
        """After the delay."""
        return self._fate


Tell = Callable[[str], None]


class SimNetwork:
    """All connections between clients and the broker, whose tasks live in `nursery`. `tell` hears of each event."""

    def __init__(self, nursery: trio.Nursery, weather: Weather, tell: Tell = lambda event: None) -> None:
        self.weather = weather
        self.tell = tell
        self._nursery = nursery
        self._server: Server | None = None
        self._context = copy_context()
        self._links: dict[int, _Link | Call] = {}
        self._made = 0
        self.frames = 0
        """Requests that were sent."""

    def attach(self, server: Server) -> None:
        """A broker is there, and takes connections from now on. Their tasks are its own, and end with its process."""
        self._server, self._context = server, copy_context()

    def detach(self, server: Server | None = None) -> None:
        """The broker is gone, this very moment: nothing that it still sends reaches anybody.

        With `server` only if it is that one: another life may have begun meanwhile.
        """
        if server is not None and server is not self._server:
            return
        self._server = None
        for link in list(self._links.values()):
            link.cut()

    async def connect(self, client_id: str) -> socket.socket:
        """A connected, non-blocking socket. Raises OSError."""
        await self._reach(client_id)
        ours, near = _pair()
        far = self._to_broker(client_id)
        link = self._links[self._made] = _Link(self, self._made, near, far)
        self._nursery.start_soon(link.run)
        return ours

    async def call(self, client_id: str) -> "Call":
        """A connection for somebody who asks one thing after the other, in frames. Raises OSError."""
        await self._reach(client_id)
        far = self._to_broker(client_id)
        call = self._links[self._made] = Call(self, self._made, far)
        return call

    async def _reach(self, client_id: str) -> None:
        fate = self.weather.dial(client_id)
        await nap(fate.delay_seconds)
        if fate.cut or self._server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    async def dial(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """As `connect`, in the form of `fencepost.Client(dial=...)`. Raises ConnectionLostError."""
        with trio.move_on_after(timeout_s):
            try:
                return await self.connect(f"{host}:{port}")
            except OSError as error:
                raise ConnectionLostError(f"{host}:{port}: {error}", sent=False) from error
        raise ConnectionLostError(f"{host}:{port}: no connection within {timeout_s:g} s", sent=False)

    def _to_broker(self, client_id: str) -> socket.socket:
        assert self._server is not None
        self._made += 1
        far, brokers = _pair()
        self._context.copy().run(self._server.adopt, brokers, Endpoint(client_id, self._made), HERE)
        return far

    def depart(self, link: int, data: bytes) -> tuple[Request, Fate]:
        """A request leaves its client: what it is, and what becomes of it. Of its copy is taken care here."""
        header = read_request_header(memoryview(data)[_SIZE.size :])
        request = Request(link, header.client_id, header.api_key, header.api_version, data)
        self.frames += 1
        fate = self.weather.request(request)
        if fate.cut or fate.copy_seconds is not None:
            copied = "" if fate.copy_seconds is None else f", a copy comes {fate.copy_seconds:.3f} s later"
            cut = f"cut {fate.cut} it arrives" if fate.cut else "arrives"
            self.tell(f"#{link} {header.client_id}: {request.name} {cut}{copied}")
        if fate.copy_seconds is not None:
            self._nursery.start_soon(self._send_copy, request, fate.copy_seconds)
        return request, fate

    async def _send_copy(self, request: Request, after_seconds: float) -> None:
        await nap(after_seconds)
        if self._server is None:
            self.tell(f"#{request.link} the late {request.name} finds no broker")
            return
        self.tell(f"#{request.link} the late {request.name} arrives")
        far = self._to_broker("late")
        try:
            await _send(far, request.data)
            with trio.move_on_after(60):
                await _Frames(far).next()
        except OSError:
            self.tell(f"#{request.link} the late {request.name} lost its broker")
        finally:
            far.close()

    def forget(self, number: int) -> None:
        """A link has ended."""
        self._links.pop(number, None)


class Call:
    """One connection of somebody who asks one thing after the other. It needs no task: the one who asks carries."""

    def __init__(self, network: SimNetwork, number: int, far: socket.socket) -> None:
        self._network = network
        self._number = number
        self._far = far
        self._frames = _Frames(far)

    def cut(self) -> None:
        """The connection ends, at once."""
        self._network.forget(self._number)
        if self._far.fileno() >= 0:
            trio.lowlevel.notify_closing(self._far)
            self._far.close()

    async def ask(self, data: bytes) -> bytes:
        """The frame that answers this one. Raises OSError when the connection ends first; `cut` it then."""
        answer = None if self._far.fileno() < 0 else await self._exchange(data)
        if answer is None:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        return answer

    async def _exchange(self, data: bytes) -> bytes | None:
        request, fate = self._network.depart(self._number, data)
        await nap(fate.delay_seconds)
        if fate.cut != "before":
            await _send(self._far, data)
        return None if fate.cut else await self._answer(request)

    async def _answer(self, request: Request) -> bytes | None:
        try:
            answer = await self._frames.next()
        except trio.ClosedResourceError:
            return None  # cut meanwhile
        if answer is None:
            return None
        fate = self._network.weather.answer(request)
        await nap(fate.delay_seconds)
        if self._far.fileno() < 0:
            return None
        if fate.cut:
            self._network.tell(f"#{self._number} {request.client_id}: the answer to {request.name} is lost")
        return None if fate.cut else answer


async def exchange(call: Call, correlation: int, version: int, request: Any, client_id: str) -> Any:
    """The answer to a request. Raises OSError."""
    api = API_BY_NAME[type(request).__name__.removesuffix("Request")]
    body = write_request_header(api, version, correlation, client_id) + api.request.encode(request, version)
    frame = memoryview(await call.ask(len(body).to_bytes(4, "big") + body))[4:]
    found, start = read_response_header(api, version, frame)
    assert found == correlation
    return api.response.decode(frame, version, start)


class _Link:
    """One connection: what the client sends goes to the broker, what that answers comes back, frame by frame."""

    def __init__(self, network: SimNetwork, number: int, near: socket.socket, far: socket.socket) -> None:
        self.number = number
        self._network = network
        self._near = near
        self._far = far
        self._scope = trio.CancelScope()
        self._asked: list[Request] = []

    def cut(self) -> None:
        """The connection ends for both sides, at once."""
        self._network.forget(self.number)
        for sock in (self._near, self._far):
            trio.lowlevel.notify_closing(sock)
            sock.close()
        self._scope.cancel()

    async def run(self) -> None:
        """Carry frames both ways until one side ends the connection, or the weather does."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._carry, self._near, self._carry_request)
                    nursery.start_soon(self._carry, self._far, self._carry_answer)
        finally:
            self._near.close()
            self._far.close()

    async def _carry(self, source: socket.socket, onward: Callable[[bytes], Awaitable[bool]]) -> None:
        frames = _Frames(source)
        try:
            while (data := await frames.next()) is not None:
                if not await onward(data):
                    break
        except OSError as error:
            self._network.tell(f"#{self.number} lost: {error}")
        except trio.ClosedResourceError:
            return  # `cut` was faster
        self.cut()

    async def _carry_request(self, data: bytes) -> bool:
        """Whether the connection goes on after this request."""
        request, fate = self._network.depart(self.number, data)
        await nap(fate.delay_seconds)
        if fate.cut != "before":
            self._asked.append(request)
            await _send(self._far, data)
        return fate.cut is None

    async def _carry_answer(self, data: bytes) -> bool:
        request = self._asked.pop(0)
        fate = self._network.weather.answer(request)
        await nap(fate.delay_seconds)
        if fate.cut != "before":
            await _send(self._near, data)
        if fate.cut:
            self._network.tell(f"#{self.number} {request.client_id}: the answer to {request.name} is lost")
        return fate.cut is None


class _Frames:
    """Whole frames off a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = bytearray()

    async def next(self) -> bytes | None:
        """The next frame, its length in front; None when the other side has closed. Raises OSError."""
        buffer = self._buffer
        while True:
            if len(buffer) >= _SIZE.size:
                end = _SIZE.size + _SIZE.unpack_from(buffer)[0]
                if len(buffer) >= end:
                    frame = bytes(buffer[:end])
                    del buffer[:end]
                    return frame
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
                continue
            if not data:
                return None
            buffer += data


async def _send(sock: socket.socket, data: bytes) -> None:
    """Send all of it. Raises OSError."""
    sent = 0
    while sent < len(data):
        try:
            sent += sock.send(memoryview(data)[sent:])
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)


def _pair() -> tuple[socket.socket, socket.socket]:
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)
    return one, other
