"""The small HTTP server of `--metrics`: it serves some pages by GET only."""

import logging
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NoReturn

import trio

from fencepost.broker.network.context import Endpoint

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX = 8 << 10
REQUEST_SECONDS = 10.0
CONNECTIONS_MAX = 16
_LOOPBACK = "127.0.0.1"
_ORIGIN = re.compile(rb"^(?i:https?)://[^/?#]*")
"""What comes before the path in a request as for a proxy, which a server accepts, too: RFC 9112, 3.2.2."""

Page = tuple[HTTPStatus, str, bytes]
"""The status, the content type and the body."""


class MetricsServer:
    """Serves scrapes; the size of a request and its time are bounded.

    A request that does not arrive holds up no other: if too many are arriving, the oldest is dropped.
    """

    def __init__(self, pages: Mapping[bytes, Callable[[], Awaitable[Page]]]) -> None:
        self._pages = pages
        self._listeners: list[trio.SocketListener] = []
        self._reading: dict[trio.CancelScope, None] = {}
        """Connections whose request has not arrived, oldest first."""

    async def listen(self, host: str, port: int) -> Endpoint:
        """Bind, and return the address. An empty host is the loopback, so that metrics are private by default."""
        try:
            self._listeners = await trio.open_tcp_listeners(port, host=host or _LOOPBACK)
        except OSError as error:
            where = Endpoint(host or _LOOPBACK, port)
            raise OSError(
                error.errno, f"metrics.listen: cannot listen on {where}: {error.strerror or error}"
            ) from error
        for further in self._listeners[1:]:
            await further.aclose()
        del self._listeners[1:]
        return Endpoint(*self._listeners[0].socket.getsockname()[:2])

    def adopt(self, listening: socket.socket) -> Endpoint:
        """Serve at a socket that listens already. Returns its address."""
        self._listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(listening))]
        address = listening.getsockname()
        return Endpoint(address, 0) if isinstance(address, str) else Endpoint(*address[:2])

    async def run(self) -> NoReturn:
        await trio.serve_listeners(self._serve, self._listeners)

    async def _serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            try:
                with trio.move_on_after(REQUEST_SECONDS):
                    head = await self._read(stream)
                    if head is not None:
                        await stream.send_all(await self._answer(head))
            except (trio.BrokenResourceError, OSError) as error:
                logger.debug("metrics connection lost cause=%r", error)

    async def _read(self, stream: trio.SocketStream) -> bytes | None:
        """The head of the request; None if newer connections took its place."""
        if len(self._reading) >= CONNECTIONS_MAX:
            next(iter(self._reading)).cancel()
        with trio.CancelScope() as scope:
            self._reading[scope] = None
            try:
                return await _read_head(stream)
            finally:
                del self._reading[scope]
        return None

    async def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST, "text/plain", b"not HTTP/1\n")
        if words[0] not in (b"GET", b"HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"GET only\n")
        path = _ORIGIN.sub(b"", words[1], count=1).partition(b"?")[0]
        page = self._pages.get(path)
        if page is None:
            there = b" and ".join(self._pages)
            return _response(HTTPStatus.NOT_FOUND, "text/plain", b"the pages are " + there + b"\n")
        try:
            status, content_type, body = await page()
        except Exception:
            logger.exception("a page of the metrics' server cannot be made path=%s", words[1].decode("latin-1"))
            body = b"the page cannot be made; the broker's log has the cause\n"
            return _response(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", body)
        return _response(status, content_type, body, with_body=words[0] == b"GET")


async def _read_head(stream: trio.SocketStream) -> bytes:
    """The bytes up to the empty line after a request's head, or up to the bound or the end of the stream."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < HEAD_BYTES_MAX:
        data = await stream.receive_some(HEAD_BYTES_MAX)
        if not data:
            break
        head += data
    return head


def _response(status: HTTPStatus, content_type: str, body: bytes, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + (body if with_body else b"")
