"""Makes the `ssl.SSLContext` of a listener from its settings."""

import os
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from fencepost.broker.security.keystores import Store, StoreError, pem_of
from fencepost.pem_file import as_file

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
TLS13_SUITES = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The `ssl.` settings of one listener."""

    listener: str
    keystore: Store
    truststore: Store
    key_password: str | None
    client_auth: str
    enabled_protocols: tuple[str, ...]
    protocol: str
    cipher_suites: tuple[str, ...]

    def fingerprint(self) -> tuple[object, ...]:
        """Changes when a file of the stores is replaced or written. A missing file counts as such."""
        return tuple(map(_state, (*self.keystore.files, *self.truststore.files)))


def _state(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_mtime_ns, found.st_size


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """Raises StoreError, whose text names the listener and the setting, and shows no secret."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    versions = [VERSIONS[name] for name in settings.enabled_protocols]
    if settings.protocol in VERSIONS:
        versions = [one for one in versions if one <= VERSIONS[settings.protocol]]
    suites = settings.cipher_suites
    if suites:
        is_13 = {one in TLS13_SUITES for one in suites}
        versions = [one for one in versions if (one is ssl.TLSVersion.TLSv1_3) in is_13]
    if not versions:
        raise StoreError(f"listener {settings.listener}: ssl.protocol and ssl.cipher.suites leave no enabled protocol")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    older = [openssl_name(one) for one in suites if one not in TLS13_SUITES]
    if older:
        with _explained(settings, "ssl.cipher.suites"):
            context.set_ciphers(":".join(older))
    _load_keystore(context, settings)
    context.verify_mode = _VERIFY[settings.client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _load_truststore(context, settings)
    return context


def store_faults(settings: TlsSettings) -> list[str]:
    """Why `make_context` refuses the settings: what is wrong with each of their stores."""
    stores: list[Callable[[], object]] = [partial(make_context, settings)]
    if _VERIFY[settings.client_auth] is not ssl.CERT_NONE:
        stores.append(partial(_load_truststore, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), settings))
    found: dict[str, None] = {}
    for load in stores:
        try:
            load()
        except StoreError as error:
            found[str(error)] = None
    return list(found)


def make_peer_context(settings: TlsSettings) -> ssl.SSLContext:
    """For connections to the same listener of other brokers, with this broker's certificate.

    Trusted are the authorities of the truststore; without one, those in the keystore and the system's. Raises
    StoreError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load_keystore(context, settings)
    if settings.truststore.is_given:
        _load_truststore(context, settings)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        with _explained(settings, settings.keystore.prefix):
            context.load_verify_locations(cadata="".join(_CERTIFICATE.findall(pem_of(settings.keystore))))
    return context


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a cipher suite of TLS 1.2 with an IANA name; other names stay as they are."""
    if not suite.startswith("TLS_"):
        return suite
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").replace("_", "-").replace("-CBC-", "-")
    name = re.sub(r"AES-(\d+)", r"AES\1", name).removeprefix("RSA-")
    return name.replace("CHACHA20-POLY1305-SHA256", "CHACHA20-POLY1305")


def suites_problem(suites: tuple[str, ...]) -> str | None:
    """What is wrong with `ssl.cipher.suites`, or None."""
    chosen = [one for one in suites if one in TLS13_SUITES]
    if chosen and len(chosen) < len(TLS13_SUITES):
        return f"OpenSSL enables the suites of TLS 1.3 together; name all of {', '.join(TLS13_SUITES)}, or none"
    return None


def _load_keystore(context: ssl.SSLContext, settings: TlsSettings) -> None:
    def password() -> str:
        if settings.key_password is None:
            raise StoreError(f"listener {settings.listener}: the private key is encrypted; set ssl.key.password")
        return settings.key_password

    store = settings.keystore
    what = f"{store.prefix}.{_location(store) or 'key'}"
    with _explained(settings, what), as_file(pem_of(store)) as path:
        context.load_cert_chain(path, None, password)


def _load_truststore(context: ssl.SSLContext, settings: TlsSettings) -> None:
    store = settings.truststore
    if not store.is_given:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    with _explained(settings, f"{store.prefix}.{_location(store) or 'certificates'}"):
        context.load_verify_locations(cadata=pem_of(store))


def _location(store: Store) -> str:
    """The setting's name and the file, absolute because the reader may expect another directory; '' without a file."""
    return f"location {os.path.abspath(store.location)}" if store.location else ""


@contextmanager
def _explained(settings: TlsSettings, what: str) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise StoreError(f"listener {settings.listener}: {error}") from None
    except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        if "PEM lib" in reason:
            reason = "it has no private key in PEM with the certificate that belongs to it"
        raise StoreError(f"listener {settings.listener}: {what} cannot be used: {reason}") from None
