"""The SASL state of a connection: the order of requests, re-authentication and the session's end (KIP-368)."""

import pytest

from fencepost.broker.security.sasl.exchange import Login, LoginRefused
from fencepost.broker.security.sasl.plain import PlainExchange, PlainUsers
from fencepost.broker.security.sasl.session import Mechanism, NotAdmitted, SaslSession, State, Step
from fencepost.protocol.errors import ErrorCode

PRODUCE, HANDSHAKE, VERSIONS, AUTHENTICATE = 0, 17, 18, 36
USERS = PlainUsers({"alice": "a", "bob": "b"})
NOW_MS = 1_000_000


class OfToken:
    """An exchange whose credential expires."""

    login: Login | None = None

    def step(self, message: bytes) -> bytes:
        self.login = Login(message.decode(), NOW_MS + 5000)
        return b""


def session(max_reauth_ms: int = 0) -> SaslSession:
    return SaslSession(
        {
            "PLAIN": Mechanism(lambda: PlainExchange(USERS), max_reauth_ms),
            "OAUTHBEARER": Mechanism(OfToken, max_reauth_ms),
        }
    )


def log_in(sasl: SaslSession, message: bytes = b"\0alice\0a", mechanism: str = "PLAIN", now: float = 0.0) -> Step:
    assert sasl.handshake(mechanism, True, now) is ErrorCode.NONE
    sasl.admit(AUTHENTICATE, now)
    return sasl.authenticate(message, NOW_MS, now)


def test_the_order_of_a_login() -> None:
    """SaslServerAuthenticator: ApiVersions once, SaslHandshake, then SaslAuthenticate only."""
    sasl = session()
    assert sasl.needs_guard
    sasl.admit(VERSIONS, 0)
    sasl.versions_sent()
    sasl.admit(HANDSHAKE, 0)
    assert log_in(sasl) == Step(b"")
    assert sasl.state is State.LOGGED_IN
    assert sasl.user == "alice"
    assert not sasl.needs_guard
    sasl.admit(PRODUCE, 1e9)


@pytest.mark.parametrize(
    ("before", "api_key"),
    [
        ((), PRODUCE),
        ((), AUTHENTICATE),
        (("versions",), VERSIONS),
        (("versions",), PRODUCE),
        (("handshake",), HANDSHAKE),
        (("handshake",), VERSIONS),
        (("handshake",), PRODUCE),
    ],
)
def test_what_is_not_in_order_closes_the_connection(before: tuple[str, ...], api_key: int) -> None:
    sasl = session()
    if "versions" in before:
        sasl.versions_sent()
    if "handshake" in before:
        sasl.handshake("PLAIN", True, 0)
    with pytest.raises(NotAdmitted, match=f"API key {api_key} is not served before the login; .*SASL_SSL"):
        sasl.admit(api_key, 0)
    for again in (PRODUCE, HANDSHAKE, VERSIONS, AUTHENTICATE):
        with pytest.raises(NotAdmitted):
            sasl.admit(again, 0)


def test_raw_tokens_after_the_first_handshake_only() -> None:
    """SaslHandshake v0 announces tokens without headers."""
    sasl = session()
    assert not sasl.expects_raw_token
    sasl.handshake("PLAIN", False, 0)
    assert sasl.expects_raw_token
    sasl.authenticate(b"\0alice\0a", NOW_MS, 0)
    assert not sasl.expects_raw_token


def test_a_mechanism_that_is_not_enabled_fails() -> None:
    sasl = session()
    assert sasl.handshake("GSSAPI", True, 0) is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert sasl.state is State.FAILED


def test_a_refusal_has_kafkas_text() -> None:
    sasl = session()
    with pytest.raises(LoginRefused) as caught:
        log_in(sasl, b"\xff")
    assert caught.value.message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"
    )
    assert sasl.state is State.FAILED
    assert sasl.user is None


@pytest.mark.parametrize(
    ("mechanism", "max_reauth_ms", "lifetime_ms"),
    [("PLAIN", 3000, 3000), ("PLAIN", 0, 0), ("OAUTHBEARER", 0, 5000), ("OAUTHBEARER", 3000, 3000),
     ("OAUTHBEARER", 9000, 5000)],
)  # fmt: skip
def test_a_session_is_as_long_as_the_shorter_bound(mechanism: str, max_reauth_ms: int, lifetime_ms: int) -> None:
    """KIP-368: the smaller of connections.max.reauth.ms and the token's rest."""
    sasl = session(max_reauth_ms)
    step = log_in(sasl, b"alice" if mechanism == "OAUTHBEARER" else b"\0alice\0a", mechanism, now=7.0)
    assert step.lifetime_ms == lifetime_ms
    assert sasl.ends == (7.0 + lifetime_ms / 1000 if lifetime_ms else None)
    assert sasl.needs_guard is bool(lifetime_ms)


def test_after_its_end_a_session_admits_only_a_new_login() -> None:
    sasl = session(3000)
    log_in(sasl)
    sasl.admit(PRODUCE, 3.0)
    sasl.admit(HANDSHAKE, 3.1)
    assert log_in(sasl, now=3.1).lifetime_ms == 3000
    sasl.admit(PRODUCE, 6.0)
    with pytest.raises(NotAdmitted, match="the session has ended"):
        sasl.admit(PRODUCE, 6.2)


def test_another_principal_cannot_log_in_again() -> None:
    sasl = session(60_000)
    log_in(sasl)
    with pytest.raises(LoginRefused) as caught:
        log_in(sasl, b"\0bob\0b")
    assert caught.value.message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert (sasl.user, sasl.state) == ("alice", State.FAILED)


def test_another_mechanism_cannot_log_in_again() -> None:
    """Kafka answers the handshake, and closes the connection at the next request."""
    sasl = session(60_000)
    log_in(sasl)
    assert sasl.handshake("OAUTHBEARER", True, 0) is ErrorCode.NONE
    with pytest.raises(NotAdmitted, match=r"requested by client is not supported for re-auth.* 'PLAIN'"):
        sasl.admit(AUTHENTICATE, 0)


def test_a_failed_re_authentication_ends_the_session() -> None:
    sasl = session(60_000)
    log_in(sasl)
    with pytest.raises(LoginRefused) as caught:
        log_in(sasl, b"\xff")
    assert "during re-authentication due to invalid credentials" in str(caught.value.message)
    with pytest.raises(NotAdmitted):
        sasl.admit(PRODUCE, 0)


def test_one_re_authentication_a_second() -> None:
    """KafkaChannel.maybeBeginServerReauthentication; the session stays as it is."""
    sasl = session(60_000)
    log_in(sasl)
    log_in(sasl, now=10.0)
    assert sasl.handshake("PLAIN", True, 10.5) is ErrorCode.ILLEGAL_SASL_STATE
    assert sasl.state is State.LOGGED_IN
    log_in(sasl, now=11.0)


def test_a_session_without_an_end_is_not_renewed() -> None:
    """KafkaChannel.maybeBeginServerReauthentication: the handshake fails, and the session stays as it is."""
    sasl = session()
    log_in(sasl)
    assert sasl.handshake("PLAIN", True, 5.0) is ErrorCode.ILLEGAL_SASL_STATE
    assert sasl.state is State.LOGGED_IN
    assert not sasl.needs_guard
