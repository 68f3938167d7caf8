"""A certificate authority of the tests' own, and certificates it signs: PEM, on disk."""

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)
_PEM = serialization.Encoding.PEM
_PKCS8 = serialization.PrivateFormat.PKCS8


@dataclass(frozen=True)
class Signed:
    """A certificate and its key, each in a file; `key` is encrypted where a password was given."""

    certificate: Path
    key: Path

    @property
    def both(self) -> str:
        """Key and certificate as one PEM string."""
        return self.key.read_text() + self.certificate.read_text()


def as_pkcs12(signed: Signed, password: str) -> Path:
    """Key and certificate as a PKCS#12 file beside them."""
    key = serialization.load_pem_private_key(signed.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(signed.certificate.read_bytes())
    encryption = serialization.BestAvailableEncryption(password.encode())
    file = signed.key.with_suffix(".p12")
    file.write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, certificate, None, encryption))
    return file


def as_pkcs12_truststore(certificate: Path, password: str) -> Path:
    """A PKCS#12 file that holds only a trusted certificate, as Java's keytool makes them."""
    trusted = x509.load_pem_x509_certificate(certificate.read_bytes())
    encryption = serialization.BestAvailableEncryption(password.encode())
    file = certificate.with_suffix(".p12")
    file.write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, [trusted], encryption))
    return file


class Authority:
    """Signs certificates. `ca` is what trusts them."""

    def __init__(self, directory: Path, name: str = "tests", *, for_servers: bool = False) -> None:
        """`for_servers`: its own certificate has an extended key usage that names servers only."""
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"fencepost {name}")])
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        if for_servers:
            builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        directory.mkdir(parents=True, exist_ok=True)
        self.ca = directory / f"{name}-ca.pem"
        self.ca.write_bytes(certificate.public_bytes(_PEM))

    def sign(
        self,
        name: str,
        *,
        hosts: Sequence[str] = (),
        addresses: Sequence[str] = (),
        password: str | None = None,
        expired: bool = False,
        unit: str | None = None,
    ) -> Signed:
        """A certificate for a server at those hosts and addresses, or for a client; `unit` is an OU."""
        key = ec.generate_private_key(ec.SECP256R1())
        units = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit)] if unit else []
        subject = x509.Name([*units, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(subject, key.public_key(), expired).add_extension(x509.ExtendedKeyUsage(usages), False)
        names = [x509.DNSName(host) for host in hosts]
        ips = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        if names or ips:
            builder = builder.add_extension(x509.SubjectAlternativeName([*names, *ips]), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        signed = Signed(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        signed.certificate.write_bytes(certificate.public_bytes(_PEM))
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        signed.key.write_bytes(key.private_bytes(_PEM, _PKCS8, encryption))
        return signed

    def server_context(self) -> ssl.SSLContext:
        """For a server in this process, at 127.0.0.1."""
        signed = self.sign("server", addresses=["127.0.0.1"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(signed.certificate, signed.key)
        return context

    def _builder(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey, expired: bool = False
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * _DAY)
            .not_valid_after(now - _DAY if expired else now + _DAY)
        )
