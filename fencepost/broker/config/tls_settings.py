"""The settings of TLS of one listener, taken together."""

from typing import TYPE_CHECKING, Any

from fencepost.broker.config.listeners import ClientListener, ListenerValues
from fencepost.broker.security.security_protocol import SecurityProtocol

if TYPE_CHECKING:
    from fencepost.broker.security.tls_context import TlsSettings


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
