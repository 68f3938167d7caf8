"""PLAIN (RFC 4616): name and password in clear text, checked against the users of a JAAS configuration."""

import hmac
from collections.abc import Mapping
from secrets import token_bytes

from fencepost.broker.security.log_names import quoted
from fencepost.broker.security.sasl.exchange import PLAIN, Login, LoginRefused, text_of

_TOKENS = 3


class PlainUsers:
    """The users of one listener, and a keyed digest of each password.

    The passwords themselves are not kept. An unknown user costs the same comparison as a wrong password.
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._key = token_bytes(32)
        self._digests = {name: self._digest(password) for name, password in passwords.items()}
        self._unknown = token_bytes(32)

    def accepts(self, name: str, password: str) -> bool:
        """Whether this is the user's password. The time does not depend on whether the user exists."""
        expected = self._digests.get(name, self._unknown)
        return hmac.compare_digest(self._digest(password), expected)

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(), "sha256")


class PlainExchange:
    """One login with PLAIN; its messages are those of Kafka's PlainSaslServer."""

    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.login: Login | None = None
        self.rejected: LoginRefused | None = None

    def step(self, message: bytes) -> bytes:
        """Check the only message, `[authorization id] NUL user NUL password`."""
        if self.login is not None:
            raise LoginRefused("a PLAIN message after the login")
        tokens = text_of(message, PLAIN).split("\0")
        if len(tokens) != _TOKENS:
            count = min(len(tokens), _TOKENS + 1)  # Kafka stops to count there
            why = f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}"
            raise LoginRefused(why, why)
        authorization_id, name, password = tokens
        for value, what in ((name, "username"), (password, "password")):
            if not value:
                raise _refused(f"{what} not specified")
        if not self._users.accepts(name, password):
            raise _refused("Invalid username or password", f" user={quoted(name)}")
        if authorization_id not in ("", name):
            raise _refused("Client requested an authorization id that is different from username")
        self.login = Login(name)
        return b""


def _refused(why: str, detail: str = "") -> LoginRefused:
    return LoginRefused(f"{why}{detail}", f"Authentication failed: {why}")
