"""The client's TLS on a blocking socket. A module of its own, because it imports trio and only TLS needs that."""

from __future__ import annotations

import contextlib
import ssl

from fencepost.client.errors import AuthenticationError
from fencepost.client.network.wire import TlsWire, refusal
from fencepost.spark_connector.network.security import SecurityError


class BlockingTls(TlsWire):
    """OpenSSL between two memory buffers, as in the client. One read from the socket can hold many TLS records."""

    def blocking_handshake(self) -> None:
        """Do the TLS handshake, and check the broker's certificate. Raises SecurityError, OSError."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                if self._take_in():
                    raise OSError("closed during the TLS handshake: does this listener use TLS?") from None
            except ssl.SSLError as error:
                with contextlib.suppress(OSError):
                    self.flush()  # the alert, with the reason for the broker
                raise _as_security_error(refusal(error)) from None
            else:
                self.flush()
                return

    def recv_into(self, into: memoryview) -> int:
        try:
            return super().recv_into(into)
        except AuthenticationError as error:
            raise _as_security_error(error) from None

    def send_all(self, data: bytes | bytearray) -> None:
        """Send all bytes within the socket's timeout. Raises SecurityError, OSError."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self.send([rest]) :]
        except AuthenticationError as error:
            raise _as_security_error(error) from None

    def close(self) -> None:
        """Send the closing alert without waiting for a response, and close the socket."""
        if self.socket.fileno() >= 0:
            with contextlib.suppress(ssl.SSLError, OSError, ValueError):
                self._tls.unwrap()
            with contextlib.suppress(OSError):
                self.flush()
            self.socket.close()


def _as_security_error(error: Exception) -> Exception:
    return SecurityError(str(error)) if isinstance(error, AuthenticationError) else error
