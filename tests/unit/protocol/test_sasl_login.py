"""The login by SASL as a value: the order of the requests, and what each refusal means."""

from typing import Any

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeResponse
from fencepost.protocol.messages.api36_sasl_authenticate import SaslAuthenticateResponse
from fencepost.protocol.sasl_login import SaslError, log_in
from fencepost.protocol.session import Refused, Sent, Session, Steps, next_step

AGREED = SaslHandshakeResponse(error_code=0, mechanisms=["X"])


class TwoMessages:
    """A mechanism: b"one", then b"two" in response to b"?"; b"!" ends it, anything else is wrong."""

    def first(self) -> bytes:
        return b"one"

    def step(self, challenge: bytes) -> bytes | None:
        if challenge not in (b"?", b"!"):
            raise SaslError("this is no challenge")
        return b"two" if challenge == b"?" else None


def begun(
    handshakes: tuple[int, int] = (0, 1), authentications: tuple[int, int] = (0, 2)
) -> tuple[Session[Sent], Steps]:
    session: Session[Sent] = Session("me", 1 << 20)
    session.versions = {17: handshakes, 36: authentications}
    return session, log_in(session, "X", TwoMessages())


def message(step: Any) -> tuple[str, int, Any]:
    """A request's name, version and content."""
    request, version = step
    name = type(request).__name__.removesuffix("Request")
    return name, version, request.mechanism if name == "SaslHandshake" else bytes(request.auth_bytes)


def answered(auth_bytes: bytes = b"", code: int = 0, lifetime_ms: int = 0, text: str | None = None) -> Any:
    return SaslAuthenticateResponse(
        error_code=code, error_message=text, auth_bytes=auth_bytes, session_lifetime_ms=lifetime_ms
    )


def test_the_handshake_comes_first_and_then_every_message_of_the_mechanism() -> None:
    """KIP-43, KIP-152: SaslHandshake v1, then each message in a SaslAuthenticate."""
    _, steps = begun()
    assert message(next_step(steps)) == ("SaslHandshake", 1, "X")
    assert message(next_step(steps, AGREED)) == ("SaslAuthenticate", 2, b"one")
    assert message(next_step(steps, answered(b"?"))) == ("SaslAuthenticate", 2, b"two")
    assert next_step(steps, answered(b"!")) is None


def test_the_last_response_tells_how_long_the_login_holds() -> None:
    """KIP-368; 0 is for ever, and a login that is renewed without an end has none."""
    session, steps = begun()
    for lifetime_ms, expected in ((60_000, 60_000), (0, 0)):
        next_step(steps)
        next_step(steps, AGREED)
        next_step(steps, answered(b"?", lifetime_ms=1))
        assert next_step(steps, answered(b"!", lifetime_ms=lifetime_ms)) is None
        assert session.lifetime_ms == expected
        steps = log_in(session, "X", TwoMessages())


def test_an_old_broker_is_spoken_to_in_its_version_of_authenticate() -> None:
    """Before KIP-368 there was v0 only; its responses name no lifetime."""
    session, steps = begun(authentications=(0, 0))
    next_step(steps)
    assert message(next_step(steps, AGREED)) == ("SaslAuthenticate", 0, b"one")
    next_step(steps, answered(b"?"))
    next_step(steps, answered(b"!"))
    assert session.lifetime_ms == 0


def test_messages_without_frames_are_not_spoken() -> None:
    """KIP-152: after SaslHandshake v0 the mechanism's messages would have no headers."""
    _, steps = begun(handshakes=(0, 0))
    with pytest.raises(Refused, match="supports SaslHandshake 0 to 0; needed is 1") as told:
        next_step(steps)
    assert told.value.code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("code", "mechanisms", "reason", "protocols"),
    [
        (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["A", "B"], "does not support X; it supports A, B", ()),
        (ErrorCode.UNSUPPORTED_SASL_MECHANISM, [], "does not support X; it supports no mechanism", ()),
        (ErrorCode.ILLEGAL_SASL_STATE, [], "does not use SASL", ("plaintext", "ssl")),
        (ErrorCode.UNKNOWN_SERVER_ERROR, [], "rejected SASL", ()),
    ],
)
def test_a_refused_handshake_tells_what_the_listener_has(
    code: ErrorCode, mechanisms: list[str], reason: str, protocols: tuple[str, ...]
) -> None:
    """KIP-43: the response lists the mechanisms; ILLEGAL_SASL_STATE is the answer of a listener without SASL."""
    _, steps = begun()
    next_step(steps)
    with pytest.raises(Refused, match=reason) as told:
        next_step(steps, SaslHandshakeResponse(error_code=code, mechanisms=mechanisms))
    assert (told.value.code, told.value.protocols, told.value.api) == (code, protocols, "SaslHandshake")


@pytest.mark.parametrize(("text", "reason"), [("no", "X: no"), ("", "X: the broker rejected the authentication")])
def test_a_refused_login_tells_the_brokers_reason(text: str, reason: str) -> None:
    """KIP-152: the error is a response, not a closed connection."""
    _, steps = begun()
    next_step(steps)
    next_step(steps, AGREED)
    with pytest.raises(Refused, match=reason) as told:
        next_step(steps, answered(code=ErrorCode.SASL_AUTHENTICATION_FAILED, text=text))
    assert (told.value.api, told.value.broker_message) == ("SaslAuthenticate", text or None)


def test_a_broker_that_does_not_prove_itself_is_refused_by_the_client() -> None:
    """RFC 5802: in SCRAM both sides prove that they know the password; no code, because the broker refused nothing."""
    _, steps = begun()
    next_step(steps)
    next_step(steps, AGREED)
    with pytest.raises(Refused, match="X: this is no challenge") as told:
        next_step(steps, answered(b"impostor"))
    assert told.value.code is None
