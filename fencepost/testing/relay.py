"""A port of this machine that leads to another one, in threads: it can be cut off or slow."""

import contextlib
import socket
import threading
import time

_CHUNK = 1 << 20


class Relay:
    """Accepts connections at a port of 127.0.0.1 and passes their bytes to `target` and back, while it is open."""

    def __init__(self, port: int, target: tuple[str, int]) -> None:
        """Open it; raises OSError if the port is taken. Port 0 is any."""
        self.delay_seconds = 0.0
        """How long what comes from clients waits here."""
        self._target = target
        self._listener = socket.create_server((target[0], port))
        self.port: int = self._listener.getsockname()[1]
        self._sockets = {self._listener}
        self._closed = False
        self._passing = threading.Event()
        self._passing.set()
        threading.Thread(target=self._accept, name="fencepost-relay", daemon=True).start()

    def close(self) -> None:
        """Close all connections; further ones are refused."""
        self._closed = True
        for sock in list(self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._passing.set()

    def cut(self, off: bool) -> None:
        """Pass nothing, as a broken network does: connections stay and are silent. What came meanwhile follows."""
        if off:
            self._passing.clear()
        else:
            self._passing.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    near.close()  # as refused as the target is
                    continue
                threading.Thread(target=self._serve, args=(near, far), name="fencepost-relay", daemon=True).start()

    def _serve(self, near: socket.socket, far: socket.socket) -> None:
        with near, far:
            self._sockets |= {near, far}
            if self._closed:
                return
            for sock in (near, far):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=self._pass, args=(far, near, False), name="fencepost-relay", daemon=True)
            back.start()
            self._pass(near, far, True)
            back.join()
            self._sockets -= {near, far}

    def _pass(self, source: socket.socket, sink: socket.socket, from_client: bool) -> None:
        with contextlib.suppress(OSError):  # either end is gone, or this relay is closed
            while True:
                source.recv(1, socket.MSG_PEEK)
                if from_client and self.delay_seconds:
                    time.sleep(self.delay_seconds)
                data = source.recv(_CHUNK)
                self._passing.wait()
                if not data:
                    break
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
