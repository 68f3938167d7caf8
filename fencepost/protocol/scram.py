"""SCRAM (RFC 5802, RFC 7677): its arithmetic, for both sides of a login and for stored credentials; the client's side.

Kafka encodes user names and passwords as UTF-8 without SASLprep, and uses no channel binding.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable

from fencepost.protocol.sasl_login import SaslError

HASHES: dict[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash of each mechanism."""
MECHANISM_NUMBERS: dict[str, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Kafka's numbers of the mechanisms, in requests and in metadata records (KIP-554)."""
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16_384
"""The iterations that Kafka's brokers accept for a stored credential."""
ITERATIONS, SALT_BYTES = 8192, 32
"""The form of credentials that fencepost makes."""
FEWEST_ITERATIONS = 4096
"""RFC 7677; with fewer an eavesdropper could guess the password too cheaply."""
MOST_ITERATIONS = 1_000_000
"""No real broker asks for more; a hostile one could keep this program busy."""
_NO_BINDING = b"n,,"


def salted_password(mechanism: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's SaltedPassword. Its time grows with `iterations`: 8192 take some milliseconds."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)


def client_key_of(mechanism: str, salted: bytes) -> bytes:
    """ClientKey: the client proves that it knows this key."""
    return sign(mechanism, salted, b"Client Key")


def server_key_of(mechanism: str, salted: bytes) -> bytes:
    """ServerKey: the broker proves that it knows this key."""
    return sign(mechanism, salted, b"Server Key")


def stored_key_of(mechanism: str, client_key: bytes) -> bytes:
    """StoredKey: verifies a client's proof, and does not reveal the ClientKey."""
    return hashlib.new(HASHES[mechanism], client_key).digest()


def sign(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, HASHES[mechanism])


def xor(left: bytes, right: bytes) -> bytes:
    """Both byte strings combined; they must be of one length."""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def escaped_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def attributes_of(message: bytes) -> dict[str, str]:
    """ "a=b,c=d" as a dictionary; the first of equal names counts. Raises ValueError for other text."""
    found: dict[str, str] = {}
    for part in message.decode().split(","):
        name, equals, value = part.partition("=")
        if len(name) != 1 or not equals:
            raise ValueError(f"{name[:20]!r} is not an attribute")
        found.setdefault(name, value)
    return found


class ScramError(SaslError):
    """The broker violates the protocol, does not know the password itself, or rejects the client."""


class Scram:
    """One login of a client (an Exchange). `nonce` must be fresh, unpredictable and printable, without commas."""

    def __init__(self, mechanism: str, username: str, password: str | bytes, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password.encode() if isinstance(password, str) else password
        self._nonce = nonce
        self._first_bare = f"n={escaped_name(username)},r={nonce}".encode()
        self._expected: bytes | None = None
        self.finished = False
        self._next: Callable[[bytes], bytes | None] = self._prove

    def first(self, *, extensions: str = "") -> bytes:
        """The first message, with Kafka's `extensions` ("tokenauth=true" for a delegation token)."""
        if extensions:
            self._first_bare += f",{extensions}".encode()
        return _NO_BINDING + self._first_bare

    def step(self, challenge: bytes) -> bytes | None:
        """The response to the broker's message. Raises ScramError. None after the last one: `finished` is true then."""
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

    def _verify(self, challenge: bytes) -> None:
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
