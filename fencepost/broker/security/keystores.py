"""Reads keystores and truststores: PEM (KIP-651) and PKCS#12. Java's own format, JKS, is refused with the way out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencepost.extras import install

_JKS_MAGIC, _DER_SEQUENCE, _PEM_BEGIN = b"\xfe\xed\xfe\xed", b"\x30", b"-----BEGIN "
PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"


class StoreError(Exception):
    """A keystore or truststore cannot be used; the text names the setting, and shows no password."""


@dataclass(frozen=True, slots=True)
class Store:
    """One store as the settings describe it. `prefix` is `ssl.keystore` or `ssl.truststore` with the listener's prefix.

    `pem` is the content if it is given in the settings themselves; then there is no location.
    """

    prefix: str
    kind: str
    location: str | None
    password: str | None
    pem: str | None = None

    @property
    def is_given(self) -> bool:
        return self.location is not None or self.pem is not None

    @property
    def files(self) -> tuple[str, ...]:
        return (self.location,) if self.location is not None and self.pem is None else ()


def pem_of(store: Store) -> str:
    """The certificates and the key of a store as PEM. Raises StoreError and OSError."""
    if store.pem is not None:
        return store.pem
    assert store.location is not None, "a store has a location or its content"
    data = Path(store.location).read_bytes()
    what = f"{store.prefix}.location {store.location}"
    if data.startswith(_JKS_MAGIC):
        raise StoreError(
            f"{what} is a JKS store, which only Java reads. Convert it: keytool -importkeystore"
            f" -srckeystore {store.location} -destkeystore {Path(store.location).with_suffix('.p12')}"
            " -deststoretype PKCS12. Then set the type to PKCS12"
        )
    found = PKCS12 if data.startswith(_DER_SEQUENCE) else PEM if _PEM_BEGIN in data else None
    if found is None or store.kind not in (found, JKS):
        raise StoreError(f"{what} has the content of {found or 'no known store'}, but {store.prefix}.type={store.kind}")
    return data.decode("utf-8", "replace") if found == PEM else _pem_of_pkcs12(data, what, store)


def _pem_of_pkcs12(data: bytes, what: str, store: Store) -> str:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        how = f"{install('tls')}, or convert it to PEM (openssl pkcs12)"
        raise StoreError(f"{what} is PKCS#12, which needs cryptography: {how}") from None
    password = None if store.password is None else store.password.encode()
    try:
        loaded = pkcs12.load_pkcs12(data, password)
    except ValueError:
        raise StoreError(f"{what} cannot be opened: {store.prefix}.password is wrong, or the file is damaged") from None
    key: Any = loaded.key
    found = [] if key is None else [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    certificates = ([loaded.cert] if loaded.cert else []) + loaded.additional_certs
    found += [one.certificate.public_bytes(Encoding.PEM) for one in certificates]
    return b"".join(found).decode("ascii")
