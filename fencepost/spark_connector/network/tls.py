"""The client's TLS on a socket that blocks; a module of its own, as only queries that use TLS need trio for it."""

from __future__ import annotations

import contextlib
import ssl

from fencepost.client.errors import AuthenticationError
from fencepost.client.network.wire import TlsWire, refusal
from fencepost.spark_connector.network.security import Refused


class BlockingTls(TlsWire):
    """OpenSSL between two buffers, as the client has it: one read of the socket brings many TLS records."""

    def shake_hands(self) -> None:
        """Agree on keys, and check the broker's certificate. Raises Refused, OSError."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                if self._take_in():
                    raise OSError("closed during the TLS handshake: is that a listener of TLS?") from None
            except ssl.SSLError as error:
                with contextlib.suppress(OSError):
                    self.flush()  # the alert that tells the other side why
                raise _told(refusal(error)) from None
            else:
                self.flush()
                return

    def recv_into(self, into: memoryview) -> int:
        try:
            return super().recv_into(into)
        except AuthenticationError as error:
            raise _told(error) from None

    def send_all(self, data: bytes | bytearray) -> None:
        """All bytes, however long that takes within the socket's timeout. Raises Refused, OSError."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self.send([rest]) :]
        except AuthenticationError as error:
            raise _told(error) from None

    def close(self) -> None:
        """Say good-bye as far as nobody has to wait for it, and close the socket."""
        if self.socket.fileno() >= 0:
            with contextlib.suppress(ssl.SSLError, OSError, ValueError):
                self._tls.unwrap()
            with contextlib.suppress(OSError):
                self.flush()
            self.socket.close()


def _told(error: Exception) -> Exception:
    return Refused(str(error)) if isinstance(error, AuthenticationError) else error
