"""How brokers of a cluster prove to one another who they are: both know the secret in the database.

It is a login by SASL with a mechanism of its own, on any listener. The arithmetic is SCRAM-SHA-256, so the secret is
not sent, and the broker that logs in learns that the other one knows it, too. It is not advertised to clients.
"""

import secrets
from typing import NamedTuple

from fencepost.broker.security.sasl.exchange import SCRAM_SHA_256
from fencepost.broker.security.sasl.scram import ScramCredentials, ScramExchange
from fencepost.protocol.scram import MIN_ITERATIONS, Scram, client_key_of, salted_password, server_key_of, stored_key_of

SECRET_BYTES = 32
USER = "cluster"
NONCE_BYTES = 24
SALT = b"the secret is as random as this would be"
"""A salt protects passwords that several users could choose; the secret was not chosen by a user."""


class _Credential(NamedTuple):
    """What verifies the proof of a broker."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class PeerLogins:
    """The logins of other brokers at this one, and of this one at others."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        salted = salted_password(SCRAM_SHA_256, secret, SALT, MIN_ITERATIONS)
        stored_key = stored_key_of(SCRAM_SHA_256, client_key_of(SCRAM_SHA_256, salted))
        known = _Credential(SALT, stored_key, server_key_of(SCRAM_SHA_256, salted), MIN_ITERATIONS)
        find = {USER: known}.get
        self._credentials = ScramCredentials(SCRAM_SHA_256, find, secrets.token_bytes(SECRET_BYTES))

    def new_exchange(self) -> ScramExchange:
        return ScramExchange(self._credentials, secrets.token_urlsafe(NONCE_BYTES))

    def own_exchange(self) -> Scram:
        """The login of this broker at another one, which has to prove that it knows the secret, too."""
        return Scram(SCRAM_SHA_256, USER, self._secret, secrets.token_urlsafe(NONCE_BYTES))
