"""Narrow protocols of what checks of rights need: the rules, and a request's sender."""

from typing import Protocol

from fencepost.broker.security.authorizer import Authorizer, HasPrincipalAndHost


class HasRights(Protocol):
    """The part of the broker that knows the rules."""

    @property
    def authorizer(self) -> Authorizer | None:
        """The authorizer with the newest durable rules; None if every client may do everything."""


class _Settings(Protocol):
    @property
    def allow_remote_broker_requests(self) -> bool: ...


class HasRightsAndConfig(HasRights, Protocol):
    """The part of the broker that knows the rules and the settings."""

    @property
    def config(self) -> _Settings: ...


class RequestInfo(Protocol):
    """A request's context: who sends it, and which API it is of."""

    api_key: int
    api_version: int
    client_id: str | None

    @property
    def session(self) -> HasPrincipalAndHost:
        """The connection's principal and host."""
