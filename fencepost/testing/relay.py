"""A port of this machine that leads to another one, in threads."""

import contextlib
import socket
import threading

_CHUNK = 65_536


class Relay:
    """Accepts connections at a port of 127.0.0.1 and passes their bytes to `target` and back, until it is closed."""

    def __init__(self, port: int, target: tuple[str, int]) -> None:
        """Listen; raises OSError if the port is taken. Port 0 is any."""
        self._target = target
        self._listener = socket.create_server((target[0], port))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = {self._listener}
        threading.Thread(target=self._accept, name="fencepost-relay", daemon=True).start()

    def close(self) -> None:
        """Close the port and all connections."""
        for sock in list(self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    near.close()  # as refused as the target is
                    continue
                threading.Thread(target=self._serve, args=(near, far), daemon=True).start()

    def _serve(self, near: socket.socket, far: socket.socket) -> None:
        self._open |= {near, far}
        back = threading.Thread(target=_pass, args=(far, near), daemon=True)
        back.start()
        _pass(near, far)
        back.join()
        self._open -= {near, far}
        near.close()
        far.close()


def _pass(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):  # either end is gone
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
