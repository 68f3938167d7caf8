"""Sending a list of buffers and file regions over a non-blocking socket, with few calls and few copies."""

import abc
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import trio

from fencepost.broker.log.storage.store import FileRegion

JOIN_BYTES_MAX = 64 << 10
BUFFERS_PER_CALL = 512 if hasattr(socket.socket, "sendmsg") else 1
"""Windows has no `sendmsg`."""
BYTES_BEFORE_WAIT = 8 << 20
"""After this many bytes of one response other tasks run, even if the socket accepts more: 1 or 2 ms of work."""
UNPACED = b"reno"
"""A congestion control without pacing; every Linux has it and lets every user choose it."""
_NAME_BYTES = 16
INTERNET = (socket.AF_INET, socket.AF_INET6)


def listen_unpaced(listening: socket.socket) -> bytes | None:
    """Give connections of this socket a congestion control without pacing. Returns the system's, or None if unknown.

    BBR, the default of many servers, paces bytes with a timer for each 64 KiB. Between two processes of one machine
    pacing has no use, and the timers cost more than the sending. The timers remain after a change of the congestion
    control, so it is set before a connection exists. `pace` gives connections from other machines the system's.
    """
    if not hasattr(socket, "TCP_CONGESTION"):
        return None
    try:
        usual = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES).rstrip(b"\0")
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)
    except OSError:  # a sandbox forbids this option: connections keep the system's congestion control
        return None
    return usual


def pace(sock: socket.socket, peer_host: str, usual: bytes | None) -> None:
    """Give an accepted connection the congestion control `usual`, unless its peer is on this machine."""
    if usual is not None and sock.getsockname()[0] != peer_host:
        with contextlib.suppress(OSError):  # the kernel no longer offers it: the connection works without it
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, usual)


class Transmission(abc.ABC):
    """The unsent part of a response. No coroutine runs between its system calls: one would cost more than they do."""

    __slots__ = ("_corked", "_next", "_parts", "_sock")

    def __init__(self, sock: socket.socket, parts: Sequence[Any], corked: bool) -> None:
        self._sock = sock
        self._corked = corked
        self._parts = parts
        self._next = 0

    @abc.abstractmethod
    def send(self) -> bool:
        """Send what the socket accepts, up to a bound. Returns True if nothing is left. Raises OSError."""

    def start(self) -> bool:
        """Send for the first time. Corked, small pieces wait until the rest fills their packet."""
        if self._corked:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, True)
        done = self.send()
        if done:
            self._uncork()
        return done

    async def finish(self, progress: Callable[[], None]) -> None:
        """Send the rest; `progress` is called before each wait. Raises OSError."""
        done = False
        while not done:
            progress()
            await trio.lowlevel.wait_writable(self._sock)
            done = self.send()
        self._uncork()

    def _uncork(self) -> None:
        """Send the last packet now, however small it is: nothing follows."""
        if self._corked:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, False)


StartSending = Callable[[Any, Sequence[Any]], Transmission | None]
"""Sends what a socket accepts; `start_sending` without TLS."""


async def send_parts(
    sock: socket.socket, parts: Sequence[Any], progress: Callable[[], None], start: StartSending | None = None
) -> None:
    """Send `parts` (bytes-like objects and FileRegions) in order; `progress` is called after each attempt.

    Does not checkpoint if the socket accepts everything at once, up to `BYTES_BEFORE_WAIT`. Raises OSError.
    """
    unfinished = (start or start_sending)(sock, parts)
    if unfinished is not None:
        await unfinished.finish(progress)
    progress()


def start_sending(sock: socket.socket, parts: Sequence[Any]) -> Transmission | None:
    """Send what the socket accepts, up to a bound. Returns what the caller must `finish`, or None. Raises OSError."""
    # without a cork each region's last bytes travel in their own packet, which wakes the client
    transmission = PlainTransmission(sock, parts, FileRegion in map(type, parts) and sock.family in INTERNET)
    return None if transmission.start() else transmission


class PlainTransmission(Transmission):
    """The unsent part of a response that is not encrypted. The kernel sends file regions."""

    __slots__ = ("_budget", "_buffers", "_offset", "_region")

    def __init__(self, sock: socket.socket, parts: Sequence[Any], corked: bool) -> None:
        super().__init__(sock, parts, corked)
        self._buffers: list[Any] = []
        """The buffers before the part at `_next` that are not sent yet."""
        self._region: FileRegion | None = None
        """The file region after the buffers; its first `_offset` bytes are sent."""
        self._offset = 0
        self._budget = 0

    def send(self) -> bool:
        """Send what the socket accepts, up to `BYTES_BEFORE_WAIT`. Returns True if nothing is left. Raises OSError."""
        self._budget = BYTES_BEFORE_WAIT
        try:
            while self._load_next():
                if not (self._sent_buffers() and self._sent_region()):
                    return False
        except BlockingIOError:
            return False
        return True

    def _load_next(self) -> bool:
        """Load the next buffers and the region after them once the earlier ones are sent. Returns False at the end."""
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
            if len(buffers) == 1 or BUFFERS_PER_CALL == 1:
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
