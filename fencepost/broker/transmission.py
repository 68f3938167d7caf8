"""Sending a list of buffers and file regions over a non-blocking socket with few calls and no needless copies."""

import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import trio

from fencepost.broker.log.store import FileRegion

JOIN_BYTES_MAX = 64 << 10
BUFFERS_PER_CALL = 512
SENDFILE_BYTES_PER_CALL = 4 << 20


async def send_parts(sock: socket.socket, parts: Sequence[Any], progress: Callable[[], None]) -> None:
    """Send `parts` (bytes-like objects and FileRegions) in order; `progress` is called after each successful call.

    Does not checkpoint where the socket takes everything at once. Raises OSError.
    """
    buffers: list[Any] = []
    for part in parts:
        if isinstance(part, FileRegion):
            if buffers:
                await _send_buffers(sock, buffers, socket.MSG_MORE, progress)
                buffers = []
            await _send_region(sock, part, progress)
        else:
            buffers.append(part)
    if buffers:
        await _send_buffers(sock, buffers, 0, progress)


async def _send_buffers(sock: socket.socket, buffers: list[Any], flags: int, progress: Callable[[], None]) -> None:
    if len(buffers) == 1 or sum(map(len, buffers)) <= JOIN_BYTES_MAX:
        data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        sent = await _send_some(sock, [data], flags)
        progress()
        rest = [memoryview(data)[sent:]] if sent < len(data) else []
    else:
        rest = [memoryview(buffer) for buffer in buffers]
    while rest:
        sent = await _send_some(sock, rest[:BUFFERS_PER_CALL], flags)
        progress()
        done = 0
        while done < len(rest) and sent >= len(rest[done]):
            sent -= len(rest[done])
            done += 1
        del rest[:done]
        if sent:
            rest[0] = rest[0][sent:]


async def _send_some(sock: socket.socket, buffers: Sequence[Any], flags: int) -> int:
    while True:
        try:
            return sock.send(buffers[0], flags) if len(buffers) == 1 else sock.sendmsg(buffers, (), flags)
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)


async def _send_region(sock: socket.socket, region: FileRegion, progress: Callable[[], None]) -> None:
    offset, left = region.offset, len(region)
    while left:
        try:
            sent = os.sendfile(sock.fileno(), region.fd, offset, min(left, SENDFILE_BYTES_PER_CALL))
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)
            continue
        if not sent:
            raise OSError(f"the log file ended {left} bytes before the region that was to be sent")
        progress()
        offset += sent
        left -= sent
