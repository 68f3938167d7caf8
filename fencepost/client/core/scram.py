"""SCRAM (RFC 5802, RFC 7677) with Kafka's brokers: both sides prove that they know a password without sending it.

Kafka encodes user names and passwords as UTF-8 without SASLprep, and uses no channel binding.
"""

import base64
import binascii
import hmac
from collections.abc import Callable

from fencepost.protocol.sasl_login import SaslError
from fencepost.protocol.scram import (
    HASHES,
    attributes_of,
    client_key_of,
    escaped_name,
    salted_password,
    server_key_of,
    sign,
    stored_key_of,
    xor,
)

__all__ = ["HASHES", "Scram", "ScramError"]

FEWEST_ITERATIONS = 4096
"""RFC 7677; with fewer an eavesdropper could guess the password too cheaply."""
MOST_ITERATIONS = 1_000_000
"""No real broker asks for more; a hostile one could keep this program busy."""
_NO_BINDING = b"n,,"


class ScramError(SaslError):
    """The broker violates the protocol, does not know the password itself, or rejects the client."""


class Scram:
    """One authentication of the client. `nonce` must be fresh, unpredictable and printable, without commas."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password.encode()
        self._nonce = nonce
        self._first_bare = f"n={escaped_name(username)},r={nonce}".encode()
        self._expected: bytes | None = None
        self.finished = False
        self._next: Callable[[bytes], bytes] = self._prove

    def first(self, *, extensions: str = "") -> bytes:
        """The first message, with Kafka's `extensions` ("tokenauth=true" for a delegation token)."""
        if extensions:
            self._first_bare += f",{extensions}".encode()
        return _NO_BINDING + self._first_bare

    def step(self, challenge: bytes) -> bytes:
        """The response to the broker's message. Raises ScramError. After the last one `finished` is true."""
        return self._next(challenge)

    def _prove(self, challenge: bytes) -> bytes:
        attributes = _attributes(challenge, "rsi")
        if not attributes["r"].startswith(self._nonce) or attributes["r"] == self._nonce:
            raise ScramError("the broker's nonce does not begin with the client's nonce")
        try:
            salt, iterations = base64.b64decode(attributes["s"], validate=True), int(attributes["i"])
        except (ValueError, binascii.Error):
            raise ScramError("the broker's salt or number of iterations cannot be read") from None
        if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise ScramError(
                f"the broker asks for {iterations} iterations; accepted are {FEWEST_ITERATIONS} to {MOST_ITERATIONS}"
            )
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, salt, iterations)
        client_key = client_key_of(mechanism, salted)
        without_proof = b"c=" + base64.b64encode(_NO_BINDING) + b",r=" + attributes["r"].encode()
        auth = self._first_bare + b"," + challenge + b"," + without_proof
        proof = xor(client_key, sign(mechanism, stored_key_of(mechanism, client_key), auth))
        self._expected = sign(mechanism, server_key_of(mechanism, salted), auth)
        self._next = self._verify
        return without_proof + b",p=" + base64.b64encode(proof)

    def _verify(self, challenge: bytes) -> bytes:
        """Verify that the broker knows the password, too: an impostor does not."""
        assert self._expected is not None
        attributes = _attributes(challenge, "")
        if "e" in attributes:
            raise ScramError(f"the broker rejected it: {attributes['e']}")
        try:
            signature = base64.b64decode(attributes.get("v", ""), validate=True)
        except (ValueError, binascii.Error):
            signature = b""
        if not hmac.compare_digest(signature, self._expected):
            raise ScramError("the broker did not prove that it knows the password: it may be an impostor")
        self.finished = True
        return b""


def _attributes(message: bytes, needed: str) -> dict[str, str]:
    """ "a=b,c=d" as a dictionary. Raises ScramError for other text, and if an attribute of `needed` is missing."""
    try:
        found = attributes_of(message)
    except ValueError:
        raise ScramError("the broker's message cannot be read") from None
    if "m" in found:
        raise ScramError("the broker demands an unknown SCRAM extension")
    for name in needed:
        if name not in found:
            raise ScramError(
                f"the broker rejected it: {found['e']}" if "e" in found else f"the broker sent no {name!r}"
            )
    return found
