"""What a connection needs of the broker, and of the server that accepted it."""

from typing import Protocol

from fencepost.broker.byte_budget import ByteBudget
from fencepost.broker.network.dispatch import Dispatch
from fencepost.broker.network.large_requests import LargeRequests
from fencepost.broker.network.login import LoginServer
from fencepost.broker.network.poller import Poller
from fencepost.broker.ports import HasAuthorizer, HasClock, HasFlusher, HasMetrics, HasQuotas, HasResponseBytes


class ConnectionBroker(HasAuthorizer, HasClock, HasFlusher, HasMetrics, HasQuotas, HasResponseBytes, Protocol):
    """What a connection itself needs of the broker."""


class ConnectionServer(LoginServer, Protocol):
    """What a connection needs of the server that accepted it."""

    @property
    def node(self) -> ConnectionBroker: ...

    dispatch: Dispatch
    large_requests: LargeRequests
    poller: Poller | None
    request_bytes: ByteBudget
    now: float
    """trio's time at the last sweep, in seconds."""
    draining: bool
    """The broker is stopping: connections answer the requests they received, and read no more."""
