"""OAUTHBEARER (RFC 7628, KIP-255): the client sends a token, which a validator accepts or rejects."""

import re
from collections.abc import Callable
from typing import NamedTuple

from fencepost.broker.security.log_names import quoted
from fencepost.broker.security.sasl.exchange import OAUTHBEARER, Login, LoginRefused, text_of

_ACKNOWLEDGEMENT = b"\x01"
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_INITIAL = re.compile(
    rf"n,(?:a=(?P<authorization_id>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_BEARER = re.compile(r"bearer +(?P<token>[A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)


class Token(NamedTuple):
    """What a validator found in a token."""

    principal: str
    expires_ms: int
    """By the wall clock."""


class TokenRejected(Exception):
    """The token is not accepted. The text is for the broker's log: it has no part of the token's signature."""

    def __init__(self, why: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(why)
        self.status = status
        """RFC 6750's error code, which the client receives."""
        self.scope = scope
        """The scope that the token lacks."""


Validator = Callable[[str], Token]
"""Checks a token. Raises TokenRejected."""


class OAuthExchange:
    """One login with OAUTHBEARER; its messages are those of Kafka's OAuthBearerSaslServer."""

    def __init__(self, validate: Validator) -> None:
        self.login: Login | None = None
        self._validate = validate
        self.rejected: LoginRefused | None = None

    def step(self, message: bytes) -> bytes:
        """Empty if the token is accepted. Else the reason as JSON, and the refusal after the client's answer."""
        if self.login is not None:
            raise LoginRefused("an OAUTHBEARER message after the login")
        if self.rejected is not None:
            if message == _ACKNOWLEDGEMENT:
                raise self.rejected
            raise LoginRefused("the client did not acknowledge that its token was rejected")
        found = _INITIAL.fullmatch(text_of(message, OAUTHBEARER))
        if found is None:
            raise LoginRefused("the OAUTHBEARER message is malformed")
        pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            raise LoginRefused("the OAUTHBEARER message has no bearer token")
        try:
            token = self._validate(bearer["token"])
        except TokenRejected as error:
            answer = f'{{"status":"{error.status}"' + (f', "scope":"{error.scope}"' if error.scope else "") + "}"
            self.rejected = LoginRefused(f"the token was rejected: {error}", answer)
            return answer.encode()
        authorization_id = found["authorization_id"]
        if authorization_id is not None and authorization_id != token.principal:
            raise LoginRefused(
                f"the authorization id {quoted(authorization_id)} is not the user user={quoted(token.principal)}",
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({token.principal})",
            )
        self.login = Login(token.principal, token.expires_ms)
        return b""
