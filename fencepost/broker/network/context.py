"""A handler's second argument: the request's header and its connection; and the error that closes the connection."""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol, TypeVar

from fencepost.broker.network.reply import Ready, Reply
from fencepost.broker.security.audit import log_login
from fencepost.broker.security.principal import ANONYMOUS, Principal
from fencepost.broker.security.sasl.session import SaslSession
from fencepost.broker.security.security_protocol import SecurityProtocol

ResultT = TypeVar("ResultT")


class Endpoint(NamedTuple):
    """A host and port as clients receive them."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Session:
    """What all requests of one connection have in common. Handlers read it through `RequestContext.session`."""

    __slots__ = (
        "client_host",
        "closed",
        "forwarded",
        "guarded",
        "listener",
        "listener_name",
        "principal",
        "sasl",
        "security_protocol",
    )

    def __init__(
        self,
        client_host: str,
        listener: Endpoint,
        principal: Principal = ANONYMOUS,
        *,
        listener_name: str = "PLAINTEXT",
        security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        sasl: SaslSession | None = None,
    ) -> None:
        self.client_host = client_host
        self.listener = listener
        """The address that this client should use for this broker: the advertised address, or without one the local
        address of this connection."""
        self.listener_name = listener_name
        """The name of the listener that accepted the connection, in upper case."""
        self.security_protocol = security_protocol
        """What protects the connection. With SASL, a login comes before all other requests."""
        self.principal = principal
        """Who the client is. A login replaces it."""
        self.sasl = sasl
        """The login of this connection; None on a listener without SASL."""
        self.guarded = sasl is not None
        """Whether requests have to be checked before they are decoded: there is no login, or the session has an end."""
        self.forwarded = False
        """Whether another broker received the request, and forwarded it to this one (KIP-590)."""
        self.closed: dict[object, Callable[[], None]] = {}
        """What to call when the connection has ended, by whose concern it is."""

    @property
    def awaits_login(self) -> bool:
        """Whether the client must log in by SASL and has not done so yet."""
        return self.sasl is not None and self.sasl.user is None

    def log_in(self, principal: Principal, mechanism: str) -> None:
        """The client has proved who it is, by a mechanism of SASL or by a certificate."""
        self.principal = principal
        log_login(self, mechanism)


class LargeWork(Protocol):
    """Runs a request's work in steps, between which other clients are served."""

    whole: Any
    """The whole request; the handler may have a part of it."""
    shared: Any
    """What the handler keeps from one part to the next; None at first."""

    async def run(self, steps: Generator[None, None, ResultT]) -> ResultT:
        """Do all steps, and return their result."""


class RequestMeter(Protocol):
    """Measures what a request uses of its client's quotas (`metering.Meter`)."""

    def limit_mutations(self, strict: bool) -> Callable[[int], bool] | None:
        """The quota for the partitions that this request creates or deletes; None if there is none."""

    def handled(self, reply: Reply) -> Reply:
        """The handler has returned."""

    def finish(self, reply: Ready) -> tuple[Ready, int]:
        """Record what the request used. Returns its reply, and for how many ms its client is throttled."""

    def muted(self, change: int) -> None:
        """The connection begins (1) or ends (-1) to be muted."""


class RequestContext:
    """One request's header, and the session of its connection.

    `repeated` is what the connection knows of a request that repeats an earlier one (`dispatch.RepeatedRequests`); only
    the handler of that API reads it.
    """

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id", "large", "meter", "repeated", "session")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, session: Session
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.session = session
        self.repeated: object | None = None
        self.meter: RequestMeter | None = None
        """Measures what the request uses; None if no quota applies to the client."""
        self.large: LargeWork | None = None
        """Runs the handler's work in steps; None: the request has few elements."""

    @property
    def client_host(self) -> str:
        """The client's host, without its port."""
        return self.session.client_host

    @property
    def principal(self) -> Principal:
        return self.session.principal

    @property
    def listener(self) -> Endpoint:
        """The address that this client should use for this broker."""
        return self.session.listener


class CloseConnection(Exception):
    """A handler raises it to close the connection without a response; the text is for the log.

    Kafka does this when a write with acks=0 fails, because such a request has no response.
    """
