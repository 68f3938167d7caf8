"""Ports that follow one another, as the cores of a broker have them, reserved while the broker is down."""

import os
import socket
import weakref
from contextlib import ExitStack, suppress

_TRIES = 200


def reserve_consecutive(owner: object, host: str, count: int) -> int:
    """The first of `count` ports that no other process gets while `owner` exists, see `reserve_port`.

    Raises OSError if there are none.
    """
    for _ in range(_TRIES):
        with ExitStack() as taken, suppress(OSError):
            first = _bound(taken, host, 0)
            port: int = first.getsockname()[1]
            held = [first, *(_bound(taken, host, port + number) for number in range(1, count))]
            taken.pop_all()
            for one in held:
                weakref.finalize(owner, os.close, one.detach())
            return port
    raise OSError(f"no {count} free ports follow one another on {host}")


def _bound(taken: ExitStack, host: str, port: int) -> socket.socket:
    sock = taken.enter_context(socket.socket())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    return sock
