"""One listening socket, and what all connections that it accepts have in common."""

import socket
from collections.abc import Callable
from typing import Protocol

from fencepost.broker.network.context import Endpoint, Session
from fencepost.broker.network.tls import TlsListener
from fencepost.broker.network.transmission import listen_unpaced, pace
from fencepost.broker.security.sasl.session import SaslSession
from fencepost.broker.security.security_protocol import SecurityProtocol


class _Settings(Protocol):
    @property
    def socket_receive_buffer_bytes(self) -> int: ...
    @property
    def socket_send_buffer_bytes(self) -> int: ...
    @property
    def socket_listen_backlog_size(self) -> int: ...


class Listening:
    """A listener that has a socket. `advertised` None: clients use the address that they connected to."""

    def __init__(
        self,
        name: str,
        protocol: SecurityProtocol,
        advertised: Endpoint | None,
        settings: _Settings,
        new_login: Callable[[], SaslSession] | None = None,
        tls: TlsListener | None = None,
    ) -> None:
        self.name = name
        self.protocol = protocol
        self.advertised = advertised
        self.tls = tls
        self.socket: socket.socket
        self._settings = settings
        self._new_login = new_login
        """Makes the SASL state of a connection; None: the listener has no SASL."""
        self._congestion_control: bytes | None = None
        """The system's congestion control, for clients on other machines; None if it cannot be set."""

    def open(self, host: str, port: int) -> Endpoint:
        """Bind and listen; an empty host is every interface. Returns the bound address. Raises OSError with it."""
        try:
            self.socket = self._open(host, port)
        except OSError as error:
            where = f"cannot listen on {Endpoint(host or '*', port)}: {error.strerror or error}"
            raise OSError(error.errno, where) from error
        return Endpoint(*self.socket.getsockname()[:2])

    def _open(self, host: str, port: int) -> socket.socket:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._settings.socket_receive_buffer_bytes >= 0:
                # before listen(): the handshake fixes the window of a connection
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._settings.socket_receive_buffer_bytes)
            self._congestion_control = listen_unpaced(sock)
            sock.bind(address)
            sock.listen(self._settings.socket_listen_backlog_size)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
        return sock

    def session(self, sock: socket.socket, peer: Endpoint) -> Session:
        """Prepare an accepted socket, and make the session of its connection. Raises OSError."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        pace(sock, peer.host, self._congestion_control)
        if self._settings.socket_send_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.socket_send_buffer_bytes)
        address = self.advertised or Endpoint(*sock.getsockname()[:2])
        sasl = None if self._new_login is None else self._new_login()
        return Session(peer.host, address, listener_name=self.name, security_protocol=self.protocol, sasl=sasl)
