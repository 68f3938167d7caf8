"""Bytes to and from a broker: a plain non-blocking socket, or TLS over one; and how a socket comes to be connected.

TLS is OpenSSL between two buffers in memory instead of OpenSSL on the socket: each read of the socket takes what has
come, many TLS records at once, and neither side ever waits inside of OpenSSL, so that cancelling leaves nothing behind.
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
"""Small pieces become one TLS record, large ones are taken in steps of this size: what lies encrypted is bounded."""
_NOT_TLS = {
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "UNKNOWN_PROTOCOL",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
}
_NO_COMMON = {"UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "NO_CIPHERS_AVAILABLE", "NO_SHARED_CIPHER"}


Dial = Callable[[str, int, float], Awaitable[socket.socket]]
"""What makes a connected socket to a host and port within some seconds; raises ConnectionLostError as `open_socket`."""


class Wire(Protocol):
    """What a connection needs of its transport. None of these waits."""

    socket: socket.socket
    """What to wait on until it is readable or writable."""

    def recv_into(self, into: Any) -> int:
        """Some bytes; 0 at the end. Raises BlockingIOError when there is nothing yet, OSError, AuthenticationError."""

    def send(self, parts: Sequence[Any]) -> int:
        """How many bytes of `parts` were taken. Raises BlockingIOError when none can be now, OSError."""

    def flush(self) -> bool:
        """Whether everything that was taken has left. Raises OSError."""

    def close(self) -> None:
        """End it; may be called again."""


class PlainWire:
    """The socket as it is."""

    __slots__ = ("recv_into", "send", "socket")

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.recv_into = sock.recv_into
        self.send = sock.sendmsg

    def flush(self) -> bool:
        """Nothing is ever kept here."""
        return True

    def close(self) -> None:
        anyio.notify_closing(self.socket)
        self.socket.close()


class TlsWire:
    """TLS over a socket. `handshake` comes first."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self.socket = sock
        self._come = ssl.MemoryBIO()
        self._leaving = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._come, self._leaving, server_hostname=host)
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
                self._tell_alert()
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
                self.flush()  # an answer to what was read, such as new keys
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
                self._rest = memoryview(self._leaving.read())
                if not self._rest:
                    return True
            try:
                sent = self.socket.send(self._rest)
            except (BlockingIOError, InterruptedError):
                return False
            self._rest = self._rest[sent:]

    def close(self) -> None:
        """Say good-bye, if that does not have to wait, and close the socket."""
        if self.socket.fileno() < 0:
            return
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            pass  # nobody waits for the other side's good-bye
        self._tell_alert()
        anyio.notify_closing(self.socket)
        self.socket.close()

    def _take_in(self) -> bool:
        """Hand to OpenSSL what the socket has; whether it has ended. Raises BlockingIOError, OSError."""
        count = self.socket.recv_into(self._read)
        if not count:
            return True
        self._come.write(self._read[:count])
        return False

    def _tell_alert(self) -> None:
        """Send what is left, as far as that goes: the other side learns why."""
        try:
            self.flush()
        except OSError:
            self._rest = memoryview(b"")


class HandshakeEndedError(ConnectionLostError):
    """The broker ended a connection that was being set up, without a word: it may be away, or expect another one."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


def refusal(error: ssl.SSLError) -> Exception:
    """What a failure of TLS means: the wrong certificate, the wrong kind of listener, or a connection that broke."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationError(f"the broker's certificate is not trusted: {error.verify_message}")
    if reason in _NOT_TLS:
        return AuthenticationError(
            "this listener does not use TLS: set security_protocol to 'plaintext' or 'sasl_plaintext'"
        )
    if "ALERT" in reason or reason in _NO_COMMON:
        said = reason.replace("TLSV13_ALERT_", "").replace("TLSV1_ALERT_", "").replace("SSLV3_ALERT_", "")
        return AuthenticationError(f"the TLS handshake failed: {said.replace('_', ' ').lower()}{_ALERTS.get(said, '')}")
    return OSError(error.errno or 0, f"TLS failed: {reason or error}")


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

    An address that does not answer holds up the next one for a quarter of a second only (RFC 8305).
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
    """The addresses in the order in which they are tried: the second one is of the other family, if there is one."""
    other = next((number for number, one in enumerate(found) if one[0] != found[0][0]), None)
    return found if other is None else [found[0], found[other], *found[1:other], *found[other + 1 :]]
