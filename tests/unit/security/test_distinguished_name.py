"""The subject of a certificate, held to what Java 17 printed for the same (`X500Principal.getName()`)."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID as N

from fencepost.broker.security.distinguished_name import subject_name

PLACE = [
    (N.COUNTRY_NAME, "US"),
    (N.STATE_OR_PROVINCE_NAME, "MD"),
    (N.LOCALITY_NAME, "Fulton"),
    (N.ORGANIZATION_NAME, 'mycp, "Inc"'),
    (N.ORGANIZATIONAL_UNIT_NAME, "SME"),
    (N.COMMON_NAME, "Duke"),
]
DIRECTORY = [
    (N.DOMAIN_COMPONENT, "com"),
    (N.DOMAIN_COMPONENT, "example"),
    (N.USER_ID, "u1"),
    (N.STREET_ADDRESS, "Main=1 #2"),
    (N.EMAIL_ADDRESS, "a@b.c"),
    (N.COMMON_NAME, " #lead;<>+\\ "),
]


def certificate(name: x509.Name) -> bytes:
    key, day = ec.generate_private_key(ec.SECP256R1()), datetime.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(x509.Name([])).public_key(key.public_key())
    builder = builder.serial_number(5).not_valid_before(day).not_valid_after(day + datetime.timedelta(days=1))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def name_of(*parts: tuple[x509.ObjectIdentifier, str]) -> str:
    return subject_name(certificate(x509.Name([x509.NameAttribute(kind, text) for kind, text in parts])))


@pytest.mark.parametrize(
    ("parts", "printed"),
    [
        (PLACE, r"CN=Duke,OU=SME,O=mycp\, \"Inc\",L=Fulton,ST=MD,C=US"),
        (
            DIRECTORY,
            r"CN=\ \#lead\;\<\>\+\\\ ,1.2.840.113549.1.9.1=#16056140622e63,STREET=Main\=1 \#2,UID=u1,DC=example,DC=com",
        ),
        ([(N.COMMON_NAME, "Zoë Müller 日本")], "CN=Zoë Müller 日本"),
        ([(N.TITLE, "Dr"), (N.SURNAME, "B")], "2.5.4.4=#0c0142,2.5.4.12=#0c024472"),
        ([(N.COMMON_NAME, "\r x\n\0y \r"), (N.ORGANIZATION_NAME, "a  b")], "O=a  b,CN=\\\r\\ x\n\\00y\\ \\\r"),
        ([(N.COMMON_NAME, "  ")], r"CN=\ \ "),
        ([], ""),
    ],
)
def test_names_as_java_prints_them(parts: list[tuple[x509.ObjectIdentifier, str]], printed: str) -> None:
    assert name_of(*parts) == printed


def test_several_attributes_of_one_name() -> None:
    own = [(N.COMMON_NAME, "multi"), (N.ORGANIZATIONAL_UNIT_NAME, "two"), (N.SERIAL_NUMBER, "77")]
    name = x509.RelativeDistinguishedName([x509.NameAttribute(kind, text) for kind, text in own])
    assert subject_name(certificate(x509.Name([name]))) == "2.5.4.5=#13023737+OU=two+CN=multi"
