"""Connections to the other brokers, over Kafka's port."""

import struct
from collections.abc import Callable
from typing import Any

import trio

from fencepost.broker.cluster.peers import PeerUnavailable
from fencepost.broker.network.context import Endpoint
from fencepost.protocol.headers import read_response_header, write_request_header
from fencepost.protocol.registry import API_BY_NAME

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 30.0
IDLE_MAX = 16
"""So many connections to one broker stay open while nobody uses them."""
_SIZE = struct.Struct(">i")


class PeerLinks:
    """Asks other brokers. A connection carries one request at a time, and is kept for the next one."""

    def __init__(self, client_id: str, endpoint_of: Callable[[int], Endpoint | None]) -> None:
        """`endpoint_of` returns where another broker listens; None if it is not known."""
        self._client_id = client_id
        self._endpoint_of = endpoint_of
        self._idle: dict[Endpoint, list[_Link]] = {}

    async def ask(self, broker: int, request: Any, version: int) -> Any:
        """The answer of another broker. The request may be sent twice, if a kept connection turns out to be broken.

        Raises PeerUnavailable.
        """
        endpoint = self._endpoint_of(broker)
        if endpoint is None:
            raise PeerUnavailable(f"broker {broker} is not known, or has no listener that this broker can use")
        try:
            with trio.fail_after(ANSWER_SECONDS):
                return await self._ask(endpoint, request, version)
        except (OSError, trio.TooSlowError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            why = f"no answer within {ANSWER_SECONDS:g} s" if isinstance(error, trio.TooSlowError) else error
            raise PeerUnavailable(
                f"broker {broker} at {endpoint.host}:{endpoint.port} does not answer: {why}"
            ) from error

    async def _ask(self, endpoint: Endpoint, request: Any, version: int) -> Any:
        kept = self._idle.get(endpoint)
        if kept:
            try:
                return await self._exchange(endpoint, kept.pop(), request, version)
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                self.forget(endpoint)  # the other broker has closed them all, most likely
        with trio.move_on_after(CONNECT_SECONDS) as connecting:
            stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
        if connecting.cancelled_caught:
            raise TimeoutError(f"no connection within {CONNECT_SECONDS:g} s")
        return await self._exchange(endpoint, _Link(stream, self._client_id), request, version)

    async def _exchange(self, endpoint: Endpoint, link: "_Link", request: Any, version: int) -> Any:
        try:
            answer = await link.exchange(request, version)
        except BaseException:
            link.close()
            raise
        kept = self._idle.setdefault(endpoint, [])
        if len(kept) < IDLE_MAX:
            kept.append(link)
        else:
            link.close()
        return answer

    def forget(self, endpoint: Endpoint) -> None:
        """Close the connections that nobody uses."""
        for link in self._idle.pop(endpoint, ()):
            link.close()

    def close(self) -> None:
        """Close all connections that nobody uses."""
        for endpoint in list(self._idle):
            self.forget(endpoint)


class _Link:
    """One connection."""

    def __init__(self, stream: trio.SocketStream, client_id: str) -> None:
        self._stream = stream
        self._client_id = client_id
        self._correlation = 0

    async def exchange(self, request: Any, version: int) -> Any:
        """The answer to a request. Raises OSError and trio's errors of streams."""
        api = API_BY_NAME[type(request).__name__.removesuffix("Request")]
        self._correlation += 1
        body = write_request_header(api, version, self._correlation, self._client_id)
        body += api.request.encode(request, version)
        await self._stream.send_all(_SIZE.pack(len(body)) + body)
        (size,) = _SIZE.unpack(await self._exactly(_SIZE.size))
        frame = await self._exactly(size)
        correlation, start = read_response_header(api, version, frame)
        if correlation != self._correlation:
            raise ConnectionResetError("the answer belongs to another request")
        return api.response.decode(frame, version, start)

    async def _exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            more = await self._stream.receive_some(count - len(received))
            if not more:
                raise ConnectionResetError("the connection ended before the answer")
            received += more
        return bytes(received)

    def close(self) -> None:
        """End the connection at once."""
        self._stream.socket.close()
