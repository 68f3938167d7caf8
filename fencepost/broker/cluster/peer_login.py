"""How brokers of a cluster prove to one another who they are: both know the secret in the database.

It is a login by SASL with a mechanism of its own, on any listener. The arithmetic is SCRAM-SHA-256, so the secret is
not sent, and the broker that logs in learns that the other one knows it, too. Clients are not told of the mechanism.
"""

import base64
import hmac
import secrets
from collections.abc import Generator
from typing import NamedTuple

from fencepost.broker.cluster.peers import PeerUnavailable
from fencepost.broker.security.sasl.exchange import SCRAM_SHA_256
from fencepost.broker.security.sasl.scram import ScramCredentials, ScramExchange
from fencepost.protocol.scram import (
    MIN_ITERATIONS,
    attributes_of,
    client_key_of,
    salted_password,
    server_key_of,
    sign,
    stored_key_of,
    xor,
)

SECRET_BYTES = 32
USER = "cluster"
NONCE_BYTES = 24
SALT = b"the secret is as random as this would be"
"""A salt protects passwords that several users could choose; nobody chose the secret."""


class _Credential(NamedTuple):
    """What verifies the proof of a broker."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class PeerLogins:
    """The logins of other brokers at this one, and of this one at others."""

    def __init__(self, secret: bytes) -> None:
        self._salted = salted_password(SCRAM_SHA_256, secret, SALT, MIN_ITERATIONS)
        stored_key = stored_key_of(SCRAM_SHA_256, client_key_of(SCRAM_SHA_256, self._salted))
        known = _Credential(SALT, stored_key, server_key_of(SCRAM_SHA_256, self._salted), MIN_ITERATIONS)
        find = {USER: known}.get
        self._credentials = ScramCredentials(SCRAM_SHA_256, find, secrets.token_bytes(SECRET_BYTES))

    def new_exchange(self) -> ScramExchange:
        """The login of another broker."""
        return ScramExchange(self._credentials, secrets.token_urlsafe(NONCE_BYTES))

    def messages(self) -> Generator[bytes, bytes, None]:
        """This broker's messages of a login; it is sent the answer to each. Raises PeerUnavailable if the other side
        does not know the secret.
        """
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        bare = f"n={USER},r={nonce}"
        challenge = yield f"n,,{bare}".encode()
        found = attributes_of(challenge)
        if not found.get("r", "").startswith(nonce) or base64.b64decode(found.get("s", "")) != SALT:
            raise PeerUnavailable("the other side is no broker of this cluster")
        without_proof = f"c={base64.b64encode(b'n,,').decode()},r={found['r']}"
        exchanged = f"{bare},{challenge.decode()},{without_proof}".encode()
        client_key = client_key_of(SCRAM_SHA_256, self._salted)
        signature = sign(SCRAM_SHA_256, stored_key_of(SCRAM_SHA_256, client_key), exchanged)
        proof = base64.b64encode(xor(client_key, signature)).decode()
        answer = yield f"{without_proof},p={proof}".encode()
        wanted = sign(SCRAM_SHA_256, server_key_of(SCRAM_SHA_256, self._salted), exchanged)
        if not hmac.compare_digest(answer, b"v=" + base64.b64encode(wanted)):
            raise PeerUnavailable("the other side does not know the cluster's secret")
