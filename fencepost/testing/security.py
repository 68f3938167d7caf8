"""TLS and users of a broker under test: a certificate made for it, the broker's settings, and what clients need."""

import datetime
import ipaddress
import ssl
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.coordinator.metadata.user_controller import CredentialUpsertion
from fencepost.extras import needed_for
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.scram import MECHANISM_NUMBERS, MIN_ITERATIONS, salted_password
from fencepost.testing.faulty_node import FaultyNode

MECHANISM = "SCRAM-SHA-512"
"""What `client_config` and `client_keywords` name; the broker has SCRAM-SHA-256, too."""
_SALT = b"of a test"
_KEY_USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip
_LIFE = datetime.timedelta(days=3650)


class Security:
    """The listener of a broker under test: with TLS or without, with logins or without."""

    def __init__(self, tls: bool, users: Mapping[str, str]) -> None:
        self.users = dict(users)
        self.ca_file: Path | None = None
        """The certificate that clients must trust. The file exists as long as this object."""
        self.protocol = ("SASL_" if users else "") + ("SSL" if tls else "PLAINTEXT")
        self._own = _make_certificate() if tls else None
        if self._own is not None:
            directory = tempfile.TemporaryDirectory(prefix="fencepost-tls-")
            weakref.finalize(self, directory.cleanup)
            self.ca_file = Path(directory.name) / "ca.pem"
            self.ca_file.write_text(self._own.ca)

    def settings(self, address: str) -> dict[str, str]:
        """The settings of the broker."""
        found = {"listeners": f"{self.protocol}://{address}"}
        if self._own is not None:
            found["ssl.keystore.type"] = "PEM"
            found["ssl.keystore.key"] = self._own.key
            found["ssl.keystore.certificate.chain"] = self._own.certificate
        if self.users:
            found["sasl.enabled.mechanisms"] = ",".join(MECHANISM_NUMBERS)
            found["connection.failed.authentication.delay.ms"] = "0"
        return found

    async def add_users(self, node: FaultyNode) -> None:
        """Create the users that the broker does not have. Raises ValueError, with Kafka's error, for a bad name."""
        known = {one.name for one in node.metadata.image.scram}
        for mechanism, number in MECHANISM_NUMBERS.items():
            upsertions = [
                CredentialUpsertion(
                    name,
                    number,
                    MIN_ITERATIONS,
                    _SALT,
                    salted_password(mechanism, password.encode(), _SALT, MIN_ITERATIONS),
                )
                for name, password in self.users.items()
                if name not in known
            ]
            for name, outcome in (await node.metadata.alter_credentials([], upsertions)).items():
                if outcome.code is not ErrorCode.NONE:
                    raise ValueError(f"user {name!r}: {outcome.code.name} {outcome.message or ''}")

    def config(self, bootstrap: str, user: str | None) -> dict[str, str]:
        """The properties of a client, in the names of librdkafka. Raises ValueError for an unknown user."""
        found = {"bootstrap.servers": bootstrap, "security.protocol": self.protocol}
        if self.ca_file is not None:
            found["ssl.ca.location"] = str(self.ca_file)
        if (name := self._user(user)) is not None:
            found |= {"sasl.mechanism": MECHANISM, "sasl.username": name, "sasl.password": self.users[name]}
        return found

    def keywords(self, bootstrap: str, user: str | None) -> dict[str, Any]:
        """The keywords of aiokafka and kafka-python. Raises ValueError for an unknown user."""
        found: dict[str, Any] = {"bootstrap_servers": bootstrap, "security_protocol": self.protocol}
        if self.ca_file is not None:
            found["ssl_context"] = ssl.create_default_context(cafile=str(self.ca_file))
        if (name := self._user(user)) is not None:
            found |= {"sasl_mechanism": MECHANISM, "sasl_plain_username": name, "sasl_plain_password": self.users[name]}
        return found

    def _user(self, name: str | None) -> str | None:
        if name is None:
            return next(iter(self.users), None)
        if name not in self.users:
            raise ValueError(f"this broker has no user {name!r}, but {sorted(self.users)}")
        return name


class _Certificate(NamedTuple):
    """A certificate for localhost, its private key, and the authority that signed it: PEM."""

    certificate: str
    key: str
    ca: str


def _make_certificate() -> _Certificate:
    """Make an authority and a certificate that no other test has. Raises ImportError without `cryptography`."""
    with needed_for("tls=True", "tls"):
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

    def builder(name: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        names = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (issuer, name))
        now = datetime.datetime.now(datetime.UTC)
        made = x509.CertificateBuilder(next(names), next(names), key.public_key(), x509.random_serial_number())
        return made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + _LIFE)

    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = "fencepost.testing"
    signs = dict.fromkeys(_KEY_USAGES, False) | {"key_cert_sign": True}
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    ca = (
        builder(issuer, issuer, authority)
        .add_extension(x509.BasicConstraints(True, 0), critical=True)
        .add_extension(x509.KeyUsage(**signs), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
    )
    leaf = (
        builder("localhost", issuer, own)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(issued_by, critical=False)
    )
    pem = serialization.Encoding.PEM
    key = own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return _Certificate(
        leaf.sign(authority, hashes.SHA256()).public_bytes(pem).decode(),
        key.decode(),
        ca.sign(authority, hashes.SHA256()).public_bytes(pem).decode(),
    )
