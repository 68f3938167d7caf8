"""The SASL state of one connection: which requests it may send, its login, and the end of its session (KIP-368).

The rules are those of Kafka's SaslServerAuthenticator. Pure: the caller passes the time.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from fencepost.broker.security.log_names import quoted
from fencepost.broker.security.sasl.exchange import Exchange, LoginRefused
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode

MIN_REAUTHENTICATION_S = 1.0
"""Kafka accepts one re-authentication a second."""


class Mechanism(NamedTuple):
    """A mechanism of a listener: makes an exchange, and bounds a session (0: no bound)."""

    new_exchange: Callable[[], Exchange]
    max_reauth_ms: int = 0
    advertised: bool = True
    """Whether it is in the list of mechanisms that clients get."""


class State(Enum):
    """What the broker expects next."""

    VERSIONS_OR_HANDSHAKE = auto()
    HANDSHAKE = auto()
    EXCHANGE = auto()
    LOGGED_IN = auto()
    FAILED = auto()


class NotAdmitted(Exception):
    """The connection has to be closed without a response; the text is for the log."""


class Step(NamedTuple):
    """The broker's side of one step: the challenge, and at the end of the exchange the session's length."""

    challenge: bytes
    lifetime_ms: int = 0


class SaslSession:
    def __init__(
        self, mechanisms: Mapping[str, Mechanism], failure_delay_s: float = 0.0, receive_bytes_max: int = 32 << 10
    ) -> None:
        self.state = State.VERSIONS_OR_HANDSHAKE
        self.receive_bytes_max = receive_bytes_max
        """The largest frame before the login (`sasl.server.max.receive.size`)."""
        self.failure_delay_s = failure_delay_s
        """How long a refusal waits (`connection.failed.authentication.delay.ms`), against guessing of passwords."""
        self.user: str | None = None
        """The user of the first login. It never changes."""
        self.why_failed = ""
        """For the log. In the state EXCHANGE: the client has its answer, and the exchange cannot succeed any more."""
        self.failure_logged = False
        """Whether the audit log has it."""
        self.ends: float | None = None
        """The end of the session, by the monotonic clock."""
        self._mechanisms = mechanisms
        self._first_mechanism: str | None = None
        self._mechanism = ""
        self._with_headers = True
        self._exchange: Exchange | None = None
        self._last_reauthentication: float | None = None

    @property
    def mechanisms(self) -> list[str]:
        return [name for name, mechanism in self._mechanisms.items() if mechanism.advertised]

    @property
    def mechanism(self) -> str:
        return self._mechanism

    @property
    def needs_guard(self) -> bool:
        """Whether the next request has to be checked: there is no login yet, or the session has an end."""
        return self.state is not State.LOGGED_IN or self.ends is not None

    @property
    def expects_raw_token(self) -> bool:
        """Whether the next frame is a token without a header: the client sent SaslHandshake v0."""
        return self.state is State.EXCHANGE and not self._with_headers

    def admit(self, api_key: int, now: float) -> None:
        """Check a request before it is decoded. Raises NotAdmitted."""
        match self.state:
            case State.VERSIONS_OR_HANDSHAKE:
                admitted = api_key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)
            case State.HANDSHAKE:
                admitted = api_key == ApiKey.SASL_HANDSHAKE
            case State.EXCHANGE:
                admitted = api_key == ApiKey.SASL_AUTHENTICATE and self._exchange is not None
            case State.LOGGED_IN:
                if self.ends is None or now <= self.ends or api_key == ApiKey.SASL_HANDSHAKE:
                    return
                raise self._failed(
                    f"the session has ended, and the client did not log in again user={quoted(self.user or '')}"
                )
            case State.FAILED:
                admitted = False
        if admitted:
            return
        if self.state is State.EXCHANGE and self._exchange is None:
            raise self._failed(
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._first_mechanism}' user={quoted(self.user or '')}"
            )
        raise self._failed(
            f"API key {api_key} is not served before the login; a client that does not log in needs security.protocol"
            " SASL_SSL or SASL_PLAINTEXT"
        )

    def _failed(self, why: str) -> NotAdmitted:
        self.state, self.why_failed = State.FAILED, why
        return NotAdmitted(why)

    def versions_sent(self) -> None:
        """The client has the versions; before a login it may ask for them once."""
        if self.state is State.VERSIONS_OR_HANDSHAKE:
            self.state = State.HANDSHAKE

    def handshake(self, mechanism: str, with_headers: bool, now: float) -> ErrorCode:
        """Begin an exchange. After a login it is a re-authentication, which must use the same mechanism.

        As in Kafka, only a session with an end can be renewed.
        """
        if self.state is State.LOGGED_IN:
            last = self._last_reauthentication
            if self.ends is None or (last is not None and now - last < MIN_REAUTHENTICATION_S):
                return ErrorCode.ILLEGAL_SASL_STATE
            self._last_reauthentication = now
        if mechanism not in self._mechanisms:
            self._failed(f"the SASL mechanism {quoted(mechanism)} is not enabled")
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._mechanism, self._with_headers = mechanism, with_headers or self.user is not None
        is_same = self._first_mechanism in (None, mechanism)
        self._exchange = self._mechanisms[mechanism].new_exchange() if is_same else None
        self.state = State.EXCHANGE
        return ErrorCode.NONE

    def authenticate(self, message: bytes, now_ms: int, now: float) -> Step:
        """One step of the exchange. Raises LoginRefused, whose `message` is set; then the session has failed."""
        try:
            return self._authenticate(message, now_ms, now)
        except LoginRefused as refused:
            again = "authentication" if self.user is None else "re-authentication"
            self._failed(self._why_refused(refused))
            if refused.message is None:
                refused.message = (
                    f"Authentication failed during {again} due to invalid credentials with SASL mechanism "
                    f"{self._mechanism}"
                )
            raise

    def _why_refused(self, refused: LoginRefused) -> str:
        return f"login refused mechanism={self._mechanism} reason={refused}"

    def _authenticate(self, message: bytes, now_ms: int, now: float) -> Step:
        assert self._exchange is not None, "`admit` lets no other request pass"
        challenge = self._exchange.step(message)
        login = self._exchange.login
        if login is None:
            if self._exchange.rejected is not None:
                self.why_failed = self._why_refused(self._exchange.rejected)
            return Step(challenge)
        if self.user is not None and login.name != self.user:
            why = f"Cannot change principals during re-authentication from User.{self.user}: User.{login.name}"
            raise LoginRefused(why, why)
        self.user, self._first_mechanism = login.name, self._mechanism
        self.state, self._exchange = State.LOGGED_IN, None
        bound_ms = self._mechanisms[self._mechanism].max_reauth_ms
        bounds = [] if login.expires_ms is None else [max(0, login.expires_ms - now_ms)]
        bounds += [bound_ms] if bound_ms > 0 else []
        lifetime_ms = min(bounds, default=0)
        self.ends = now + lifetime_ms / 1000 if bounds else None
        return Step(challenge, lifetime_ms)
