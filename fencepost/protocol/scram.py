"""SCRAM's arithmetic (RFC 5802, RFC 7677), for both sides of a login and for stored credentials."""

import hashlib
import hmac

HASHES: dict[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash of each mechanism."""
MECHANISM_NUMBERS: dict[str, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Kafka's numbers of the mechanisms, in requests and in metadata records (KIP-554)."""
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16_384
"""The iterations that Kafka's brokers accept for a stored credential."""
ITERATIONS, SALT_BYTES = 8192, 32
"""The form of credentials that fencepost makes."""


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
    """The HMAC of a message."""
    return hmac.digest(key, message, HASHES[mechanism])


def xor(left: bytes, right: bytes) -> bytes:
    """Both byte strings combined; they must be of one length."""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def escaped_name(name: str) -> str:
    """A user name as SCRAM's messages have it."""
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
