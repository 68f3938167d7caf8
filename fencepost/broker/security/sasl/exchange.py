"""One run of a mechanism, seen from the broker: messages in, challenges out, a login at the end."""

from typing import NamedTuple, Protocol

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
SCRAM_SHA_256, SCRAM_SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
FENCEPOST_CLUSTER = "FENCEPOST-CLUSTER"
"""Between brokers of a cluster; it is not advertised to clients."""
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
"""The mechanisms that the broker has, under Kafka's names."""


class Login(NamedTuple):
    """The result of an exchange: the user's name, and when the credential expires."""

    name: str
    expires_ms: int | None = None
    """The end of a token, by the wall clock; None for a password, which does not expire."""


class LoginRefused(Exception):
    """The client is not logged in. The text is for the broker's log; it has no secret.

    `message` is for the client. None: Kafka's text, which does not say whether the user exists.
    """

    def __init__(self, why: str, message: str | None = None) -> None:
        super().__init__(why)
        self.message = message


class Exchange(Protocol):
    """A mechanism's state machine."""

    login: Login | None
    """The login, once the exchange is complete."""
    rejected: LoginRefused | None
    """The refusal that `step` raises next: the client knows it by now, and may close the connection."""

    def step(self, message: bytes) -> bytes:
        """The response to the client's next message. Raises LoginRefused; then the exchange has failed for good."""


def text_of(message: bytes, mechanism: str) -> str:
    """A message as text. Raises LoginRefused if it is not UTF-8."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginRefused(f"a {mechanism} message is not UTF-8") from None
