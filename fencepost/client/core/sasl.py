"""SASL's mechanisms as values: the client's first message, and its response to each challenge."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fencepost.protocol.sasl_login import Exchange, SaslError
from fencepost.protocol.scram import Scram

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
SCRAM_SHA_256, SCRAM_SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
PASSWORD_MECHANISMS = (SCRAM_SHA_512, SCRAM_SHA_256, PLAIN)
"""Those by which a name and a password log in, the safest first."""
_SEPARATOR = "\x01"
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


@dataclass(frozen=True)
class OAuthToken:
    """The result of a token provider: the token and SASL extensions (KIP-342), such as a cluster's id."""

    value: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)


class PlainExchange:
    """PLAIN (RFC 4616): name and password in clear text; only TLS encrypts them."""

    def __init__(self, username: str, password: str) -> None:
        if "\0" in username + password:
            raise SaslError("the user name and the password must not contain a zero byte")
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def step(self, challenge: bytes) -> None:
        """The exchange has no second message."""


class OAuthExchange:
    """OAUTHBEARER (RFC 7628, KIP-255)."""

    def __init__(self, token: OAuthToken) -> None:
        if not _TOKEN.fullmatch(token.value):
            raise SaslError("the token is empty or contains characters that a bearer token must not contain (RFC 6750)")
        for name, value in token.extensions.items():
            if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
                raise SaslError(f"the SASL extension {name!r} has an invalid name or value (RFC 7628)")
        fields = [f"auth=Bearer {token.value}", *(f"{name}={value}" for name, value in token.extensions.items())]
        self._message = ("n,," + "".join(_SEPARATOR + one for one in fields) + _SEPARATOR * 2).encode()
        self._rejected: bytes | None = None

    def first(self) -> bytes:
        return self._message

    def step(self, challenge: bytes) -> bytes | None:
        """None if the broker accepted the token; else an acknowledgement of its reason (JSON), before the error."""
        if self._rejected is not None:
            raise SaslError(f"the broker rejected the token: {self._rejected.decode(errors='replace')}")
        if not challenge:
            return None
        self._rejected = challenge[:500]
        return _SEPARATOR.encode()


def exchange_for(
    mechanism: str, *, username: str = "", password: str = "", nonce: str = "", token: OAuthToken | None = None
) -> Exchange:
    """The exchange of a mechanism. Raises SaslError for a token or a name that cannot be sent."""
    if mechanism == PLAIN:
        return PlainExchange(username, password)
    if mechanism == OAUTHBEARER:
        if token is None:
            raise SaslError("no token was given: set sasl_oauth_token_provider")
        return OAuthExchange(token)
    return Scram(mechanism, username, password, nonce)
