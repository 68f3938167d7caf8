"""A socket as a stream with less around it than trio's: an exchange between cores takes few passes of the loop.

trio's `SocketStream` makes a pass after each send that succeeds at once, guards against two tasks at one socket, and
tries to receive before it waits. A link has one request under way, so its answer is never there before the request.
"""

import socket

import trio


class PlainStream(trio.abc.Stream):
    """For one task at a time. All methods raise OSError."""

    def __init__(self, opened: trio.SocketStream) -> None:
        """Takes the socket over from `opened`."""
        self._socket = socket.socket(fileno=opened.socket.detach())
        self._socket.setblocking(False)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Without a checkpoint, if the system takes all of `data` at once."""
        left = memoryview(data)
        while True:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                pass
            if not left:
                return
            await self.wait_send_all_might_not_block()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.wait_writable(self._socket)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What has come, b"" at the end."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._socket.recv(max_bytes or 1 << 16)
            except BlockingIOError:
                continue

    def close(self) -> None:
        """At once; no task may wait."""
        self._socket.close()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()
