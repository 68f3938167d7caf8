"""Spark's Python workers and the 40 ms that the kernel would have each of their tasks wait."""

from __future__ import annotations

import os
import socket
import stat
from typing import Any

from fencepost.spark_connector.worker.reused_worker import is_kept

_OPEN_FILES = "/proc/self/fd"
_LOOPBACK = ("127.0.0.1", "::1")


def acknowledge_now() -> None:
    """Acknowledge what has come over this worker's connection to the JVM; nothing outside of a worker that is kept.

    The JVM sends a task in two small writes, first the function, then the partition. Nagle's algorithm, which Spark
    leaves on, holds the second one back until the first is acknowledged, and Linux delays acknowledgements on a
    connection that was answered on before: by 40 ms, in each task of a worker but the first. Belongs to what is done
    while the function is unpickled, which is between the two.

    Such an option lasts only until something is sent; it changes no byte of what either side reads. Other systems than
    Linux have no TCP_QUICKACK and are left alone, as is a process that has set a default timeout for its sockets: a
    socket made of a file descriptor would take it on.
    """
    if not is_kept() or not hasattr(socket, "TCP_QUICKACK") or socket.getdefaulttimeout() is not None:
        return
    for number in os.listdir(_OPEN_FILES):
        try:
            if stat.S_ISSOCK(os.fstat(int(number)).st_mode):
                _acknowledge(int(number))
        except OSError:
            continue  # closed since, or of a kind that knows neither peer nor option: not the JVM's


class QuickAckOnUnpickle:
    """What Spark sends with a task: the second half of it does not wait for the acknowledgement of the first."""

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
