"""Bytes to and from a broker: a plain non-blocking socket, or TLS over one; and opening the socket.

TLS is OpenSSL between two buffers in memory instead of OpenSSL on the socket: each read of the socket takes all TLS
records that have arrived, and no call waits inside of OpenSSL, so that a cancellation leaves a consistent state.
"""

import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import anyio

from fencepost.client.errors import AuthenticationError, ConnectionLostError

_READ_BYTES = 128 << 10
_NEXT_ADDRESS_S = 0.25
_JOIN_BYTES = 64 << 10
"""Small pieces become one TLS record, large ones are encrypted in steps of this size: that bounds the buffer."""
_NOT_TLS = {
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "UNKNOWN_PROTOCOL",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
}
_NO_COMMON = {"UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "NO_CIPHERS_AVAILABLE", "NO_SHARED_CIPHER"}


Dial = Callable[[str, int, float], Awaitable[socket.socket]]
"""A function that opens a socket to (host, port) within a timeout in seconds; raises as `open_socket` does."""


class Wire(Protocol):
    """The transport of a connection. No method waits."""

    socket: socket.socket
    """The socket to wait on until it is readable or writable."""

    def recv_into(self, into: Any) -> int:
        """Some bytes; 0 at the end. Raises BlockingIOError when there is nothing yet, OSError, AuthenticationError."""

    def send(self, parts: Sequence[Any]) -> int:
        """Send `parts`; returns how many bytes were accepted. Raises BlockingIOError when none can be now, OSError."""

    def flush(self) -> bool:
        """Whether all accepted bytes were sent. Raises OSError."""

    def close(self) -> None:
        """Close it; may be called again."""


class PlainWire:
    """The plain socket."""

    __slots__ = ("recv_into", "send", "socket")

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.recv_into = sock.recv_into
        self.send: Callable[[Sequence[Any]], int] = getattr(sock, "sendmsg", self._send_joined)

    def _send_joined(self, parts: Sequence[Any]) -> int:
        """Instead of `sendmsg`, which Windows lacks."""
        return self.socket.send(b"".join(parts))

    def flush(self) -> bool:
        """Nothing is buffered here."""
        return True

    def close(self) -> None:
        anyio.notify_closing(self.socket)
        self.socket.close()


class TlsWire:
    """TLS over a socket. `handshake` comes first."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self.socket = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._read = memoryview(bytearray(_READ_BYTES))
        self._rest = memoryview(b"")

    async def handshake(self) -> None:
        """Agree on keys; check the broker's certificate. Raises AuthenticationError, HandshakeEndedError, OSError."""
        while True:
            try:
                self._tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            except ssl.SSLError as error:
                self._send_alert()
                raise refusal(error) from error
            while not self.flush():
                await anyio.wait_writable(self.socket)
            if done:
                return
            try:
                ended = self._take_in()
            except BlockingIOError:
                await anyio.wait_readable(self.socket)
            else:
                if ended:
                    raise HandshakeEndedError(
                        "the broker closed the connection during the TLS handshake: does this listener use TLS?"
                    )

    def recv_into(self, into: Any) -> int:
        while True:
            try:
                return self._tls.read(len(into), into)  # type: ignore[return-value] # a number, with a buffer
            except ssl.SSLWantReadError:
                self.flush()  # a response of TLS itself, such as new keys
            except ssl.SSLZeroReturnError:
                return 0
            except ssl.SSLError as error:
                raise refusal(error) from error
            if self._take_in():
                return 0

    def send(self, parts: Sequence[Any]) -> int:
        if not self.flush():
            raise BlockingIOError
        first = parts[0]
        if len(first) < _JOIN_BYTES and len(parts) > 1:
            chosen: list[Any] = []
            size = 0
            for part in parts:
                size += len(part)
                if size > _JOIN_BYTES and chosen:
                    break
                chosen.append(part)
            first = b"".join(chosen)
        try:
            taken = self._tls.write(first[:_JOIN_BYTES])
        except ssl.SSLError as error:
            raise refusal(error) from error
        self.flush()
        return taken

    def flush(self) -> bool:
        while True:
            if not self._rest:
                self._rest = memoryview(self._outgoing.read())
                if not self._rest:
                    return True
            try:
                sent = self.socket.send(self._rest)
            except (BlockingIOError, InterruptedError):
                return False
            self._rest = self._rest[sent:]

    def close(self) -> None:
        """Send TLS's closing alert, if that needs no wait, and close the socket."""
        if self.socket.fileno() >= 0:
            self._end_tls()
            anyio.notify_closing(self.socket)
            self.socket.close()

    def _end_tls(self) -> None:
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            pass  # the broker's closing alert is not needed
        self._send_alert()

    def _take_in(self) -> bool:
        """Pass received bytes to OpenSSL; returns whether the socket has ended. Raises BlockingIOError, OSError."""
        count = self.socket.recv_into(self._read)
        if not count:
            return True
        self._incoming.write(self._read[:count])
        return False

    def _send_alert(self) -> None:
        """Try to send the remaining bytes: the alert tells the broker the reason."""
        try:
            self.flush()
        except OSError:
            self._rest = memoryview(b"")


class HandshakeEndedError(ConnectionLostError):
    """The broker closed a connection during its set-up: it may be down, or the listener uses another protocol."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


def refusal(error: ssl.SSLError) -> Exception:
    """The error for a failure of TLS: a wrong certificate, a wrong kind of listener, or a broken connection."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        what_to_do = _UNTRUSTED.get(
            error.verify_code, "ssl_cafile (ssl.ca.location) must name its authority's certificate"
        )
        return AuthenticationError(
            f"the broker's certificate is not trusted: {error.verify_message.rstrip('.')}; {what_to_do}"
        )
    if reason in _NOT_TLS:
        return AuthenticationError(
            "this listener does not use TLS: set security_protocol to 'plaintext' or 'sasl_plaintext'"
        )
    if "ALERT" in reason or reason in _NO_COMMON:
        alert = reason.replace("TLSV13_ALERT_", "").replace("TLSV1_ALERT_", "").replace("SSLV3_ALERT_", "")
        return AuthenticationError(
            f"the TLS handshake failed: {alert.replace('_', ' ').lower()}{_ALERTS.get(alert, '')}"
        )
    return OSError(error.errno or 0, f"TLS failed: {reason or error}")


_OTHER_HOST = "connect to a name or address of its subjectAltName"
_UNTRUSTED = {10: "the broker needs a new one", 62: _OTHER_HOST, 64: _OTHER_HOST}
"""What to do, by OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED, _HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH."""
_ALERTS = {
    "CERTIFICATE_REQUIRED": "; the broker requires a client certificate: give ssl_certfile and ssl_keyfile",
    "BAD_CERTIFICATE": "; the broker rejected the client certificate, or requires one: see ssl_certfile, ssl_keyfile",
    "CERTIFICATE_UNKNOWN": "; the broker rejected the client certificate",
    "UNKNOWN_CA": "; the broker does not trust the CA that signed the client certificate",
    "HANDSHAKE_FAILURE": "; there is no common cipher, or the broker requires a client certificate",
    "PROTOCOL_VERSION": "; there is no common TLS version: see ssl_enabled_protocols",
}


async def open_socket(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connected, non-blocking TCP socket to one of all addresses of `host`, of IPv6 or IPv4.

    An address that does not answer delays the next one by a quarter of a second only (RFC 8305).
    Raises ConnectionLostError(sent=False).
    """
    where = f"{host}:{port}"
    with anyio.move_on_after(timeout_s):
        try:
            return await _first_connected(host, port)
        except OSError as error:
            raise ConnectionLostError(f"{where}: {error}", sent=False) from error
    raise ConnectionLostError(f"{where}: no connection within {timeout_s:g} s", sent=False)


async def _first_connected(host: str, port: int) -> socket.socket:
    """The socket that connects first. Raises the OSError of the last address that failed."""
    connected: list[socket.socket] = []
    failures: list[OSError] = []

    async def attempt(family: int, address: Any, failed: anyio.Event) -> None:
        try:
            sock = await _connected(family, address)
        except OSError as error:
            failures.append(error)
            failed.set()
            return
        connected.append(sock)
        tasks.cancel_scope.cancel()

    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        async with anyio.create_task_group() as tasks:
            for family, _, _, _, address in _alternating(found):
                failed = anyio.Event()
                tasks.start_soon(attempt, family, address, failed)
                with anyio.move_on_after(_NEXT_ADDRESS_S):
                    await failed.wait()
        if not connected:
            raise failures[-1]
        return connected.pop(0)
    finally:
        for unused in connected:
            unused.close()


async def _connected(family: int, address: Any) -> socket.socket:
    """A socket that is connected to this address. Raises OSError."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wrong = sock.connect_ex(address)
        if wrong in (errno.EINPROGRESS, errno.EWOULDBLOCK):
            await anyio.wait_writable(sock)
            wrong = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if wrong:
            raise OSError(wrong, os.strerror(wrong))
    except BaseException:
        sock.close()
        raise
    return sock


def _alternating(found: list[Any]) -> list[Any]:
    """The addresses in the order of the attempts: the second one is of the other family, if there is one."""
    other = next((number for number, one in enumerate(found) if one[0] != found[0][0]), None)
    return found if other is None else [found[0], found[other], *found[1:other], *found[other + 1 :]]
