"""A port that stays a broker's own while the broker is down, whatever else is started on the machine meanwhile."""

import os
import socket
import sys
import weakref


def reserve_port(owner: object, host: str) -> int:
    """A free port that the system gives to nobody else for as long as `owner` lives; its broker may listen there.

    A socket that is bound and does not listen: with SO_REUSEADDR on both sides Linux lets a listener in beside it, and
    neither port 0 nor an outgoing connection is given the port. 0 where that does not hold, as on macOS: there the
    system picks a port at the first start, and somebody else may have it by the second. Raises OSError.
    """
    if sys.platform != "linux":
        return 0
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, 0))
        port: int = sock.getsockname()[1]
        weakref.finalize(owner, os.close, sock.detach())
    return port
