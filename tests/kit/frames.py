"""Clients and frames as fake brokers and proxies meet them: out of a stream, and as the requests that they hold."""

import socket
import struct
from collections.abc import Iterator
from typing import Any

import trio

from fencepost.protocol.headers import read_request_header, write_response_header
from fencepost.protocol.registry import API_BY_KEY

SIZE = struct.Struct(">i")
FRAME_BYTES_MAX = 100 << 20
"""The start of a TLS handshake looks like a frame of 369 MB. Kafka hangs up as well."""


def framed(*parts: bytes) -> bytes:
    return SIZE.pack(sum(map(len, parts))) + b"".join(parts)


def accepted(listener: socket.socket) -> Iterator[socket.socket]:
    """Whoever connects, until `listener` is shut down."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        yield client


class FrameReader:
    """One frame after the other, without their lengths."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def next(self) -> bytes | None:
        """The next frame; None where the stream ends, or what comes can be no frame."""
        size = await self._take(SIZE.size)
        return None if size is None else await self._take(SIZE.unpack(size)[0])

    async def _take(self, count: int) -> bytes | None:
        while len(self._buffer) < count:
            data = b"" if count > FRAME_BYTES_MAX else await self._stream.receive_some(1 << 16)
            if not data:
                return None
            self._buffer += data
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


class Asked:
    """A request, and how it is answered."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self.header = read_request_header(frame)
        self.api = API_BY_KEY[self.header.api_key]
        self.version = self.header.api_version

    @property
    def request(self) -> Any:
        """What was asked. It may not be readable, where the version is none of ours."""
        return self.api.request.decode(self._frame, self.version, self.header.body_start)

    def answered(self, answer: Any, version: int | None = None) -> bytes:
        """The frame of an answer: a value, or its body as bytes."""
        version = self.version if version is None else version
        body = answer if isinstance(answer, bytes) else self.api.response.encode(answer, version)
        return framed(write_response_header(self.api, version, self.header.correlation_id), body)
