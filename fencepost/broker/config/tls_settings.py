"""The settings of TLS under Kafka's names, for all listeners or for one (`listener.name.<name>.ssl.client.auth`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fencepost.broker.config.fields import Kind, Update, setting
from fencepost.broker.config.listeners import ClientListener
from fencepost.broker.security.principal_mapping import mapping_problem
from fencepost.broker.security.security_protocol import SecurityProtocol

if TYPE_CHECKING:
    from fencepost.broker.security.tls_context import TlsSettings

_DYNAMIC = Update.CLUSTER_WIDE
_TYPES = ("JKS", "PKCS12", "PEM")
_VERSIONS = ("TLSv1.2", "TLSv1.3")


def _suites_problem(suites: tuple[str, ...]) -> str | None:
    from fencepost.broker.security.tls_context import suites_problem  # here: it imports ssl

    return suites_problem(suites)


def _text(doc: str, kind: Kind = Kind.STRING) -> Any:
    return setting(kind, None, doc, nullable=True, update=_DYNAMIC)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TlsListenerSettings:
    """The certificate of the broker, the certificates of clients, and the allowed protocols."""

    ssl_keystore_type: str = setting(
        Kind.STRING, "JKS", "PEM or PKCS12; JKS stands for either, and a JKS file is refused.", choices=_TYPES,
        update=_DYNAMIC,
    )  # fmt: skip
    ssl_keystore_location: str | None = _text("The file with the broker's private key and its certificate chain.")
    ssl_keystore_password: str | None = _text("The password of a PKCS12 keystore.", Kind.PASSWORD)
    ssl_key_password: str | None = _text("The password of an encrypted private key in PEM.", Kind.PASSWORD)
    ssl_keystore_key: str | None = _text("The private key in PEM, in place of a file (KIP-651).", Kind.PASSWORD)
    ssl_keystore_certificate_chain: str | None = _text(
        "The certificate chain in PEM, in place of a file (KIP-651).", Kind.PASSWORD
    )
    ssl_truststore_type: str = setting(
        Kind.STRING, "JKS", "PEM or PKCS12; JKS stands for either, and a JKS file is refused.", choices=_TYPES,
        update=_DYNAMIC,
    )  # fmt: skip
    ssl_truststore_location: str | None = _text(
        "The file with the authorities that sign clients' certificates. Not set: the system's."
    )
    ssl_truststore_password: str | None = _text("The password of a PKCS12 truststore.", Kind.PASSWORD)
    ssl_truststore_certificates: str | None = _text(
        "The authorities' certificates in PEM, in place of a file (KIP-651).", Kind.PASSWORD
    )
    ssl_client_auth: str = setting(
        Kind.STRING, "none", "Whether clients need a certificate (mTLS).", choices=("required", "requested", "none"),
        update=_DYNAMIC,
    )  # fmt: skip
    ssl_enabled_protocols: tuple[str, ...] = setting(
        Kind.LIST, _VERSIONS, "The allowed versions of TLS.", choices=_VERSIONS, update=_DYNAMIC
    )
    ssl_protocol: str = setting(
        Kind.STRING, "TLSv1.3", "The highest allowed version of TLS.", choices=(*_VERSIONS, "TLS"), update=_DYNAMIC
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        Kind.LIST, (), "The allowed cipher suites, by their IANA names. Empty: OpenSSL's choice.",
        check=_suites_problem, update=_DYNAMIC,
    )  # fmt: skip
    ssl_principal_mapping_rules: str = setting(
        Kind.STRING, "DEFAULT",
        "How the subject of a client's certificate becomes a principal: RULE:pattern/replacement/[LU], DEFAULT.",
        check=mapping_problem,
    )  # fmt: skip


class ListenerValues(Protocol):
    """The settings of listeners; `BrokerConfig` is one."""

    @property
    def of_listeners(self) -> Mapping[str, Any]:
        """The values that are set for one listener alone, by their full names."""

    def of_listener(self, listener: str, name: str) -> Any:
        """The value of a setting for a listener: its own, or that of all listeners."""


def certificate_problem(listener: ClientListener, values: ListenerValues) -> str | None:
    """Why a listener with TLS has no certificate, or None."""
    own = (values.of_listener(listener.name, f"ssl.keystore.{name}") for name in ("location", "certificate.chain"))
    if not listener.protocol.tls or any(own):
        return None
    return (
        f"listeners: {listener.name} uses {listener.protocol.name} and needs a certificate; set ssl.keystore.location,"
        f" or listener.name.{listener.name.lower()}.ssl.keystore.location for this listener alone"
    )


def tls_settings(listener: ClientListener, values: ListenerValues) -> "TlsSettings":
    """The settings of a listener with TLS.

    With SASL the client needs a certificate only if `ssl.client.auth` is set for this listener alone, as in Kafka.
    """
    from fencepost.broker.security.keystores import Store
    from fencepost.broker.security.tls_context import TlsSettings

    def get(name: str) -> Any:
        return values.of_listener(listener.name, f"ssl.{name}")

    chain, key = get("keystore.certificate.chain"), get("keystore.key")
    own = None if chain is None else f"{key or ''}\n{chain}\n"
    with_sasl = listener.protocol is SecurityProtocol.SASL_SSL
    only_own = values.of_listeners.get(f"listener.name.{listener.name.lower()}.ssl.client.auth")
    client_auth = only_own if with_sasl else get("client.auth")
    return TlsSettings(
        listener=listener.name,
        keystore=Store("ssl.keystore", get("keystore.type"), get("keystore.location"), get("keystore.password"), own),
        truststore=Store(
            "ssl.truststore",
            get("truststore.type"),
            get("truststore.location"),
            get("truststore.password"),
            get("truststore.certificates"),
        ),
        key_password=get("key.password"),
        client_auth=client_auth or "none",
        enabled_protocols=get("enabled.protocols"),
        protocol=get("protocol"),
        cipher_suites=get("cipher.suites"),
    )
