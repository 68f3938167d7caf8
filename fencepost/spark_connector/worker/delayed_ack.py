"""Avoids the 40 ms by which delayed acknowledgements slow each task of a reused Python worker."""

from __future__ import annotations

import os
import socket
import stat
from typing import Any

from fencepost.spark_connector.worker.reused_worker import is_reused

_OPEN_FILES = "/proc/self/fd"
_LOOPBACK = ("127.0.0.1", "::1")


def acknowledge_now() -> None:
    """Acknowledge received bytes on this worker's connection to the JVM. Does nothing outside of a reused worker.

    The JVM sends a task in two small writes: the function, then the partition. Spark leaves Nagle's algorithm on, so
    the second write waits for the acknowledgement of the first. In each task after a worker's first, Linux delays this
    acknowledgement by 40 ms. Call this while the function is unpickled: that is between the two writes.

    The option lasts until the next send and changes no data. Other systems than Linux have no TCP_QUICKACK. A process
    with a default socket timeout is left unchanged: a socket made from a file descriptor would get that timeout.
    """
    if not is_reused() or not hasattr(socket, "TCP_QUICKACK") or socket.getdefaulttimeout() is not None:
        return
    for number in os.listdir(_OPEN_FILES):
        try:
            if stat.S_ISSOCK(os.fstat(int(number)).st_mode):
                _acknowledge(int(number))
        except OSError:
            continue  # closed since, or without a peer or this option: not the connection to the JVM


class QuickAckOnUnpickle:
    """Base class of objects that Spark pickles for tasks: acknowledges at once when it is unpickled."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        acknowledge_now()
        self.__dict__.update(state)


def _acknowledge(number: int) -> None:
    sock = socket.socket(fileno=number)
    try:
        tcp = sock.type == socket.SOCK_STREAM and sock.family in (socket.AF_INET, socket.AF_INET6)
        if tcp and sock.getpeername()[0] in _LOOPBACK:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    finally:
        sock.detach()
