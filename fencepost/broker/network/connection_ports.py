"""What a connection needs of the broker, and of the server that accepted it."""

from typing import Protocol

from fencepost.broker.byte_budget import ByteBudget
from fencepost.broker.network.login import LoginServer
from fencepost.broker.network.poller import Poller
from fencepost.broker.ports import Broker


class ConnectionServer(LoginServer, Protocol):
    """What a connection needs of the server that accepted it."""

    @property
    def node(self) -> Broker: ...

    poller: Poller | None
    request_bytes: ByteBudget
    now: float
    """trio's time at the last sweep, in seconds."""
    draining: bool
    """The broker is stopping: connections answer the requests they received, and read no more."""
