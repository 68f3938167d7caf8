"""The login by SASL on a connection, from the client's side and without I/O (KIP-43, KIP-152, KIP-368)."""

from typing import Any, Protocol

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeRequest
from fencepost.protocol.messages.api36_sasl_authenticate import SaslAuthenticateRequest
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.session import Refused, Session, Steps

RENEW_AFTER, RENEW_SPREAD = 0.85, 0.10
"""The part of a login's lifetime after which it is renewed, and how far it may vary: as in Kafka's own client."""


class SaslError(Exception):
    """The exchange cannot continue; the message gives the reason and never contains a secret."""


class Exchange(Protocol):
    """One run of a mechanism. The broker's response to `first()` goes to `step`, and so on until it returns None."""

    def first(self) -> bytes: ...

    def step(self, challenge: bytes) -> bytes | None:
        """The client's next message; None at the end, once the broker is verified. Raises SaslError."""


def log_in(session: Session[Any], mechanism: str, exchange: Exchange) -> Steps:
    """Agree on the mechanism, and exchange its messages. Sets the session's `lifetime_ms`.

    A renewed login (KIP-368) is the same conversation; nothing else may be sent between its two parts.
    """
    # SaslHandshake v0 would be followed by messages without frames (KIP-152).
    version = session.version_of(API_BY_KEY[ApiKey.SASL_HANDSHAKE], at_least=1)
    response = yield SaslHandshakeRequest(mechanism=mechanism), version
    if response.error_code != ErrorCode.NONE:
        raise _refused_mechanism(mechanism, response)
    message: bytes | None = exchange.first()
    lifetime_ms = 0
    while message is not None:
        version = session.version_of(API_BY_KEY[ApiKey.SASL_AUTHENTICATE])
        response = yield SaslAuthenticateRequest(auth_bytes=message), version
        if response.error_code != ErrorCode.NONE:
            reason = f"{mechanism}: {response.error_message or 'the broker rejected the authentication'}"
            said = response.error_message or None
            raise Refused(reason, code=response.error_code, api="SaslAuthenticate", broker_message=said)
        lifetime_ms = response.session_lifetime_ms
        try:
            message = exchange.step(bytes(response.auth_bytes))
        except SaslError as error:
            raise Refused(f"{mechanism}: {error}", api="SaslAuthenticate") from None
    session.lifetime_ms = max(lifetime_ms, 0)


def _refused_mechanism(mechanism: str, response: Any) -> Refused:
    reason, protocols = "the broker rejected SASL", tuple[str, ...]()
    if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(response.mechanisms) or "no mechanism"
        reason = f"the broker does not support {mechanism}; it supports {offered}"
    elif response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        reason, protocols = "this listener does not use SASL", ("plaintext", "ssl")
    return Refused(reason, code=response.error_code, api="SaslHandshake", protocols=protocols)
