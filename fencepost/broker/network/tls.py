"""TLS on a connection: the handshake, receiving, and the client's principal. `encrypting.py` sends.

OpenSSL reads and writes the non-blocking socket itself (`ssl.SSLSocket`). A memory buffer between them would copy every
byte twice more on the way out, and fetched bytes are most of what a broker sends
(docs/decisions/0059-tls-on-the-socket.md).
"""

import contextlib
import socket
import ssl
from collections.abc import Callable

import trio

from fencepost.broker.network.context import CloseConnection
from fencepost.broker.network.encrypting import start_encrypting
from fencepost.broker.network.frames import HTTP_METHODS, FrameBuffer
from fencepost.broker.security.principal import Principal

HANDSHAKE_SECONDS = 10.0
HANDSHAKE_STEPS_PER_PASS = 4
"""Steps of handshakes of one listener in one pass of trio's loop. A step with an RSA key takes 1 to 5 ms, and the
requests of all other clients wait for the pass."""
_HANDSHAKE_RECORD = 0x16
_PEEKED_BYTES = 5
_ALERT = b"\x15\x03\x03\x00\x02\x02\x0a"
"""unexpected_message, fatal. By this alert, which Kafka sends too, clients know that the listener uses TLS."""
_DRAINED_BYTES = 64 << 10
_LINGER_SECONDS = 1.0
_NO_CERTIFICATE = "PEER_DID_NOT_RETURN_A_CERTIFICATE"


class CertificateRefused(CloseConnection):
    """The client's certificate is no login: it is missing, or not valid, or maps to no principal."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"login refused mechanism=certificate reason={reason}")


class TlsListener:
    """What the connections of one listener with TLS have in common.

    `context` may be replaced at any time: later handshakes use the new one, connections keep theirs. `principal_of`
    maps the certificate of a client (DER) to its principal, and raises CertificateRefused if it has none.
    """

    start_sending = staticmethod(start_encrypting)

    def __init__(self, context: ssl.SSLContext, principal_of: Callable[[bytes], Principal] | None) -> None:
        self.context = context
        self._principal_of = principal_of
        self._steps = trio.Semaphore(HANDSHAKE_STEPS_PER_PASS)

    async def handshake(self, sock: socket.socket, wrapped: Callable[[ssl.SSLSocket], None]) -> Principal | None:
        """Returns the principal of the client's certificate if it has one. `wrapped` gets the socket to use in place
        of `sock`, once there is one.
        Raises OSError if the client closes the connection, CloseConnection if it does not speak TLS as this listener
        wants it, and CertificateRefused.
        """
        with trio.move_on_after(HANDSHAKE_SECONDS):
            await trio.lowlevel.wait_readable(sock)  # an idle connection needs no state of OpenSSL
            _check_first_bytes(sock)
            encrypted = self.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            wrapped(encrypted)
            await self._make_steps(encrypted)
            return self._principal(encrypted)
        raise CloseConnection(f"the client did not finish the TLS handshake within {HANDSHAKE_SECONDS:g} s")

    async def _make_steps(self, encrypted: ssl.SSLSocket) -> None:
        while True:
            wait = None
            async with self._steps:
                try:
                    encrypted.do_handshake()
                except ssl.SSLWantReadError:
                    wait = trio.lowlevel.wait_readable
                except ssl.SSLWantWriteError:
                    wait = trio.lowlevel.wait_writable
                except ssl.SSLEOFError as error:
                    raise ConnectionResetError(str(error)) from None
                except ssl.SSLError as error:
                    if isinstance(error, ssl.SSLCertVerificationError) or error.reason == _NO_CERTIFICATE:
                        raise CertificateRefused(_reason(error)) from None
                    raise CloseConnection(f"the TLS handshake failed: {_reason(error)}") from None
                await trio.lowlevel.checkpoint()  # before the next step, of whichever connection
            if wait is None:
                return
            await wait(encrypted)

    def _principal(self, encrypted: ssl.SSLSocket) -> Principal | None:
        if self._principal_of is None:
            return None
        certificate = encrypted.getpeercert(binary_form=True)
        return None if certificate is None else self._principal_of(certificate)

    def receive(self, sock: socket.socket, frames: FrameBuffer) -> int:
        """Receive once. Returns the bytes that `frames` does not know of yet; 0 at the end. Raises BlockingIOError.

        OpenSSL keeps no decrypted bytes afterwards: the poller sees only what the kernel holds.
        """
        assert isinstance(sock, ssl.SSLSocket)
        space = frames.space()
        try:
            received = sock.recv_into(space)
            while received and sock.pending():
                frames.received(received)
                received = sock.recv_into(frames.space())
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        return received

    def close(self, sock: socket.socket) -> None:
        _notify(sock)
        sock.close()


def _notify(sock: socket.socket) -> None:
    """Send close_notify, without which some clients report a truncated connection."""
    if isinstance(sock, ssl.SSLSocket):
        with contextlib.suppress(OSError, ValueError):  # the client is gone, or has not sent its own: no matter
            sock.unwrap()


async def linger(refused: socket.socket) -> None:
    """Send the end of the connection, and discard what the client sends until it closes, or for a second.

    In TLS 1.3 a client may send requests before its certificate is refused. If they were unread at the close, the
    kernel would reset the connection, and the client would lose the alert that names the reason.
    """
    _notify(refused)
    with trio.move_on_after(_LINGER_SECONDS), contextlib.suppress(OSError):
        refused.shutdown(socket.SHUT_WR)
        while True:
            await trio.lowlevel.wait_readable(refused)
            if not refused.recv(_DRAINED_BYTES):
                return


def _check_first_bytes(sock: socket.socket) -> None:
    """Raise CloseConnection if a client does not begin with TLS, and ConnectionResetError if it is gone."""
    first = sock.recv(_PEEKED_BYTES, socket.MSG_PEEK)
    if not first:
        raise ConnectionResetError("the client closed the connection before the TLS handshake")
    if first[0] == _HANDSHAKE_RECORD:
        return
    sock.recv(_DRAINED_BYTES)  # else the close would reset the connection, and the client might not get the alert
    sock.send(_ALERT)
    if first[:4] in HTTP_METHODS:
        raise CloseConnection("the client speaks HTTP, but this listener uses TLS and Kafka's protocol")
    raise CloseConnection(
        "the client does not speak TLS, but this listener uses it;"
        " set the client's security.protocol to SSL or SASL_SSL"
    )


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's reason in words: `no shared cipher`, `peer did not return a certificate`."""
    verification = getattr(error, "verify_message", None)
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return f"{reason}: {verification}" if verification else reason
