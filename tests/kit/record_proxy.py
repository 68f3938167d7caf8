"""A TCP proxy that keeps the frames that pass, to take golden bytes from other people's clients and brokers.

Run it by `python -m tests.golden.capture`, which says what to point where.
"""

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.kit.frames import accepted

LENGTH = struct.Struct(">i")
REQUEST_START = struct.Struct(">hhi")
FRAME_BYTES_MAX = 100 << 20


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer, both as they were on the wire, without the length in front."""

    api_key: int
    api_version: int
    request: bytes
    response: bytes


@dataclass
class _Connection:
    """What is under way on one client's connection: requests by correlation id."""

    client: socket.socket
    upstream: socket.socket
    asked: dict[int, tuple[int, int, bytes]] = field(default_factory=dict)


class RecordProxy:
    """Listens on `port`, passes everything on to `upstream`, and keeps each exchange in `exchanges`.

    The broker behind it must advertise the proxy's address, or clients go past it after their first Metadata.
    """

    def __init__(self, upstream: tuple[str, int], port: int = 0) -> None:
        self.exchanges: list[Exchange] = []
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """HOST:PORT for a client's bootstrap setting."""
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            for one in (self._listener, *self._open):
                with contextlib.suppress(OSError):  # the other side may have gone first
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def _accept(self) -> None:
        for client in accepted(self._listener):
            connection = _Connection(client, socket.create_connection(self._upstream))
            with self._lock:
                self._open += [connection.client, connection.upstream]
            threading.Thread(target=self._requests, args=(connection,), daemon=True).start()
            threading.Thread(target=self._responses, args=(connection,), daemon=True).start()

    def _requests(self, connection: _Connection) -> None:
        while frame := _read_frame(connection.client):
            api_key, api_version, correlation_id = REQUEST_START.unpack_from(frame)
            connection.asked[correlation_id] = (api_key, api_version, frame)
            if not _pass_on(connection.upstream, frame):
                break
        _shut(connection.upstream)

    def _responses(self, connection: _Connection) -> None:
        while frame := _read_frame(connection.upstream):
            (correlation_id,) = LENGTH.unpack_from(frame)
            api_key, api_version, request = connection.asked.pop(correlation_id)
            with self._lock:
                self.exchanges.append(Exchange(api_key, api_version, request, frame))
            if not _pass_on(connection.client, frame):
                break
        _shut(connection.client)


def _read_frame(source: socket.socket) -> bytes:
    """The next frame without its length; nothing at the end of the stream."""
    head = _read_exactly(source, LENGTH.size)
    if not head:
        return b""
    (size,) = LENGTH.unpack(head)
    if not 0 < size <= FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {size} bytes")
    return _read_exactly(source, size)


def _read_exactly(source: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        try:
            part = source.recv(size)
        except OSError:
            return b""
        if not part:
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _pass_on(target: socket.socket, frame: bytes) -> bool:
    try:
        target.sendall(LENGTH.pack(len(frame)) + frame)
    except OSError:
        return False
    return True


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may be gone already
        one.shutdown(socket.SHUT_RDWR)
