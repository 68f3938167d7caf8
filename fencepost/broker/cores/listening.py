"""The socket on which a core listens for the others; only brokers log in there."""

import socket

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.network.context import Endpoint, Session
from fencepost.broker.network.listening import Listening
from fencepost.broker.security.sasl.exchange import FENCEPOST_CLUSTER
from fencepost.broker.security.sasl.session import Mechanism, SaslSession
from fencepost.broker.security.security_protocol import SecurityProtocol

NAME = "CORES"
HERE = "127.0.0.1"
"""The address of all cores, in lines of the log: a UNIX socket has none."""


class _Nameless:
    """A listening UNIX socket. Its connections have no address, so that no limit of clients holds for them."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner

    def fileno(self) -> int:
        return self._inner.fileno()

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        return self._inner.accept()[0], ("", 0)

    def close(self) -> None:
        self._inner.close()


class CoresListening(Listening):
    """The other cores connect here, and log in with the secret of this start."""

    def __init__(self, inner: socket.socket, mechanism: Mechanism, config: BrokerConfig, address: Endpoint) -> None:
        """`address` names this core to clients whose requests are forwarded."""
        mechanisms = {FENCEPOST_CLUSTER: mechanism}
        super().__init__(NAME, SecurityProtocol.SASL_PLAINTEXT, address, config, lambda: SaslSession(mechanisms))
        self.socket = _Nameless(inner)  # type: ignore[assignment]
        self._address = address

    def session(self, sock: socket.socket, peer: Endpoint) -> Session:
        sock.setblocking(False)
        assert self._new_login is not None
        return Session(HERE, self._address, listener_name=NAME, security_protocol=self.protocol, sasl=self._new_login())
