"""Connections within one test without a network: pairs of sockets, on which what one end sends the other has at once.

With virtual time nothing has to be waited for then: if all tasks wait and no socket has bytes, only time can go on.
"""

import errno
import math
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

import trio

FIRST_PORT = 20_000
"""Ports of this size are never given to a socket that asks for any port."""


class PairedListener(trio.abc.Listener[trio.SocketStream]):
    """Hands out the broker's ends of connections, for `trio.serve_listeners`."""

    def __init__(self, network: "PairedNetwork", port: int) -> None:
        self.port = port
        self._network = network
        self._connect, self._connected = trio.open_memory_channel[socket.socket](math.inf)

    def connect(self) -> socket.socket:
        """The client's end of a new connection, non-blocking. As with TCP, nobody has accepted it yet."""
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
        self._connect.send_nowait(theirs)
        return ours

    async def accept(self) -> trio.SocketStream:
        """Wait for the next connection."""
        return trio.SocketStream(trio.socket.from_stdlib_socket(await self._connected.receive()))

    async def aclose(self) -> None:
        """Refuse connections from now on, and end those that nobody has accepted."""
        self._network.close(self.port)
        while self._connected.statistics().current_buffer_used:
            self._connected.receive_nowait().close()
        await trio.lowlevel.checkpoint()


class PairedNetwork:
    """The ports of one test. `connect` reaches all that is no port of a listener here."""

    def __init__(self, connect: Callable[[str, int], Awaitable[socket.socket]]) -> None:
        self._connect = connect
        self._ports = count(FIRST_PORT)
        self._listeners: dict[int, PairedListener] = {}
        self._closed: set[int] = set()

    async def listen(self, port: int, host: str) -> tuple[int, Sequence[trio.abc.Listener[trio.SocketStream]]]:
        """A listener on a port, or on any if it is 0; its port."""
        listener = PairedListener(self, port or next(self._ports))
        self._listeners[listener.port] = listener
        return listener.port, [listener]

    def close(self, port: int) -> None:
        """Nobody listens there any more."""
        del self._listeners[port]
        self._closed.add(port)

    async def connect(self, host: str, port: int) -> socket.socket:
        """In place of the client's function. Raises OSError."""
        await trio.lowlevel.checkpoint()
        if port in self._listeners:
            return self._listeners[port].connect()
        if port in self._closed:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return await self._connect(host, port)
