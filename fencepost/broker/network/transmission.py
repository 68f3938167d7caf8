"""Sending a list of buffers and file regions over a non-blocking socket with few calls and no needless copies."""

import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import trio

from fencepost.broker.log.storage.store import FileRegion

JOIN_BYTES_MAX = 64 << 10
BUFFERS_PER_CALL = 512
BYTES_BEFORE_WAIT = 8 << 20
"""A reader who takes all that comes lets others run after so much of one answer: a millisecond or two of work."""
UNPACED = b"reno"
"""A congestion control that every Linux has, allows everybody, and that sends without pauses."""
_NAME_BYTES = 16
_INTERNET = (socket.AF_INET, socket.AF_INET6)


def listen_unpaced(listening: socket.socket) -> bytes | None:
    """Let connections of this socket send without pauses; the system's own congestion control, or None if unknown.

    BBR, the default of many a server, spreads bytes over time by a timer for each 64 KiB. Between two processes of one
    machine there is no network to spare, and the timers cost more than the sending. They outlive a change of the
    congestion control, hence it is chosen before there is a connection; `pace` gives the others the system's.
    """
    if not hasattr(socket, "TCP_CONGESTION"):
        return None
    try:
        usual = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES).rstrip(b"\0")
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)
    except OSError:  # a sandbox without this choice: connections are as the system makes them
        return None
    return usual


def pace(sock: socket.socket, peer_host: str, usual: bytes | None) -> None:
    """Give an accepted connection the congestion control `usual`, unless its peer is on this very machine."""
    if usual is not None and sock.getsockname()[0] != peer_host:
        with contextlib.suppress(OSError):  # taken out of the kernel meanwhile: the other one does, too
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, usual)


async def send_parts(sock: socket.socket, parts: Sequence[Any], progress: Callable[[], None]) -> None:
    """Send `parts` (bytes-like objects and FileRegions) in order; `progress` is called whenever some may have left.

    Does not checkpoint where the socket takes everything at once, unless that is a lot. Raises OSError.
    """
    rest = start_sending(sock, parts)
    if rest is not None:
        await rest.finish(progress)
    progress()


def start_sending(sock: socket.socket, parts: Sequence[Any]) -> "Rest | None":
    """Send as much of `parts` as the socket takes, up to a bound; what is left must be finished. Raises OSError."""
    corked = FileRegion in map(type, parts) and sock.family in _INTERNET
    if corked:  # else each region's last bytes go in a packet of their own, and wake the reader for it
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, True)
    rest = Rest(sock, parts, corked)
    if not rest.send():
        return rest
    rest.uncork()
    return None


class Rest:
    """What is left of an answer. No coroutine stands between its system calls: for a MiB they are quicker than that."""

    __slots__ = ("_budget", "_buffers", "_corked", "_next", "_offset", "_parts", "_region", "_sock")

    def __init__(self, sock: socket.socket, parts: Sequence[Any], corked: bool) -> None:
        self._sock = sock
        self._corked = corked
        self._parts = parts
        self._next = 0
        """Number of the first part that is not taken up yet."""
        self._buffers: list[Any] = []
        self._region: FileRegion | None = None
        """What comes after the buffers, from `_offset` bytes into it on."""
        self._offset = 0
        self._budget = 0

    async def finish(self, progress: Callable[[], None]) -> None:
        """Send all of it; `progress` is called whenever some may have left. Raises OSError."""
        done = False
        while not done:
            progress()
            await trio.lowlevel.wait_writable(self._sock)
            done = self.send()
        self.uncork()

    def uncork(self) -> None:
        """Nothing follows: the last packet leaves however small it is."""
        if self._corked:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, False)

    def send(self) -> bool:
        """Send what the socket takes, up to a bound; True when nothing is left. Raises OSError."""
        self._budget = BYTES_BEFORE_WAIT
        try:
            while self._take_up():
                if not (self._sent_buffers() and self._sent_region()):
                    return False
        except BlockingIOError:
            return False
        return True

    def _take_up(self) -> bool:
        """Go on to the next buffers and the region behind them once those before have left; False at the end."""
        if self._buffers or self._region is not None:
            return True
        parts, at = self._parts, self._next
        if at == len(parts):
            return False
        buffers = self._buffers
        while at < len(parts) and self._region is None:
            part = parts[at]
            at += 1
            if type(part) is FileRegion:
                self._region, self._offset = part, 0
            else:
                buffers.append(part)
        self._next = at
        if len(buffers) > 1 and sum(map(len, buffers)) <= JOIN_BYTES_MAX:
            self._buffers = [b"".join(buffers)]
        return True

    def _sent_buffers(self) -> bool:
        buffers, sock = self._buffers, self._sock
        flags = 0 if self._region is None else socket.MSG_MORE
        while buffers:
            if self._budget <= 0:
                return False
            if len(buffers) == 1:
                sent = sock.send(buffers[0], flags)
            else:
                sent = sock.sendmsg(buffers[:BUFFERS_PER_CALL], (), flags)
            self._budget -= sent
            done = 0
            while done < len(buffers) and sent >= len(buffers[done]):
                sent -= len(buffers[done])
                done += 1
            del buffers[:done]
            if sent:
                buffers[0] = memoryview(buffers[0])[sent:]
        return True

    def _sent_region(self) -> bool:
        region = self._region
        if region is None:
            return True
        out = self._sock.fileno()
        while left := region.length - self._offset:
            if self._budget <= 0:
                return False
            sent = os.sendfile(out, region.fd, region.offset + self._offset, min(left, self._budget))
            if not sent:
                raise OSError(f"the log file ended {left} bytes before the region that was to be sent")
            self._budget -= sent
            self._offset += sent
        self._region = None
        return True
