"""A port that stays reserved for a broker while the broker is down."""

import os
import socket
import sys
import weakref


def reserve_port(owner: object, host: str) -> int:
    """A free port that the system gives to no other process while `owner` exists; its broker may listen there.

    The reservation is a socket that is bound and does not listen. With SO_REUSEADDR on both sockets Linux allows a
    listener on the same port, but it assigns the port neither for port 0 nor to an outgoing connection. Returns 0 on
    other systems, such as macOS: there the system chooses a port at the first start, and another process may have it by
    the second. Raises OSError.
    """
    if sys.platform != "linux":
        return 0
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, 0))
        port: int = sock.getsockname()[1]
        weakref.finalize(owner, os.close, sock.detach())
    return port


def free_port(owner: object, host: str) -> int:
    """A port as `reserve_port` gives it; where the system cannot reserve one, one that is free now. Raises OSError."""
    if port := reserve_port(owner, host):
        return port
    with socket.create_server((host, 0)) as sock:
        found: int = sock.getsockname()[1]
    return found
