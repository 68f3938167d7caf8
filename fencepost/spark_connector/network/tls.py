"""The client's TLS on a blocking socket. A module of its own, because it imports trio and only TLS needs that."""

from __future__ import annotations

import ssl

from fencepost.client.network.wire import TlsWire, refusal


class BlockingTls(TlsWire):
    """OpenSSL between two memory buffers, as in the client. One read from the socket can hold many TLS records."""

    def blocking_handshake(self) -> None:
        """Do the TLS handshake, and check the broker's certificate. Raises AuthenticationError, OSError."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                if self._take_in():
                    raise OSError("closed during the TLS handshake: does this listener use TLS?") from None
            except ssl.SSLError as error:
                self._send_alert()
                raise refusal(error) from None
            else:
                self.flush()
                return

    def sendall(self, data: bytes) -> None:
        """Send all bytes within the socket's timeout. Raises AuthenticationError, OSError."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.send([rest]) :]

    def close(self) -> None:
        """Send the closing alert without waiting for a response, and close the socket."""
        if self.socket.fileno() >= 0:
            self._end_tls()
            self.socket.close()
