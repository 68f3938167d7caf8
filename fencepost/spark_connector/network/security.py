"""TLS and SASL on the connector's blocking connections: the client's own options, contexts and mechanisms."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

    from fencepost.client.network.security import SecurityConfig
    from fencepost.protocol.sasl_login import Exchange
    from fencepost.spark_connector.network.tls import BlockingTls

_TOKEN_OPTIONS = ("kafka.oauth_cb", "kafka.sasl.oauth.token.provider")
# Java's classes and algorithms, and settings with only one value here. A query may set them; they have no effect.
WITHOUT_EFFECT = (
    "kafka.ssl.protocol",
    "kafka.ssl.provider",
    "kafka.ssl.keymanager.algorithm",
    "kafka.ssl.trustmanager.algorithm",
    "kafka.ssl.secure.random.implementation",
    "kafka.ssl.engine.factory.class",
    "kafka.ssl.truststore.password",
    "kafka.sasl.client.callback.handler.class",
    "kafka.sasl.login.class",
    "kafka.sasl.login.connect.timeout.ms",
    "kafka.sasl.login.read.timeout.ms",
    "kafka.sasl.login.refresh.buffer.seconds",
    "kafka.sasl.login.refresh.min.period.seconds",
    "kafka.sasl.login.refresh.window.factor",
    "kafka.sasl.login.refresh.window.jitter",
    "kafka.sasl.login.retry.backoff.ms",
    "kafka.sasl.login.retry.backoff.max.ms",
)
NAMES = (
    "kafka.security.protocol",
    "kafka.sasl.mechanism",
    "kafka.sasl.mechanisms",
    "kafka.sasl.username",
    "kafka.sasl.password",
    "kafka.sasl.jaas.config",
    *_TOKEN_OPTIONS,
    "kafka.ssl.cafile",
    "kafka.ssl.certfile",
    "kafka.ssl.keyfile",
    "kafka.ssl.check.hostname",
    "kafka.ssl.verify",
    "kafka.ssl.ca.location",
    "kafka.ssl.ca.pem",
    "kafka.ssl.truststore.location",
    "kafka.ssl.truststore.certificates",
    "kafka.ssl.truststore.type",
    "kafka.ssl.certificate.location",
    "kafka.ssl.certificate.pem",
    "kafka.ssl.keystore.location",
    "kafka.ssl.keystore.certificate.chain",
    "kafka.ssl.keystore.key",
    "kafka.ssl.keystore.type",
    "kafka.ssl.keystore.password",
    "kafka.ssl.key.location",
    "kafka.ssl.key.pem",
    "kafka.ssl.key.password",
    "kafka.ssl.cipher.suites",
    "kafka.ssl.enabled.protocols",
    "kafka.ssl.endpoint.identification.algorithm",
    "kafka.enable.ssl.certificate.verification",
)
"""The names of Java's clients and of librdkafka, after `kafka.`. The client's `translated` maps them."""
# Names that the client's options do not have, and the names that they have instead.
_RENAMED = {"ssl_keystore_password": "ssl_key_password"}


def security_of(given: Mapping[str, str]) -> SecurityConfig | None:
    """The client's security configuration from the options; None for a plain connection.

    Raises ValueError with the client's name of the option and the allowed values.
    """
    security = {name: value for name, value in given.items() if name in NAMES}
    if not security or (
        len(security) == 1 and security.get("kafka.security.protocol", "").strip().upper() == "PLAINTEXT"
    ):
        return None
    from fencepost.client.config_parsing import parse_kafka
    from fencepost.client.network.security import SecurityConfig, translated

    dotted: dict[str, Any] = {name.removeprefix("kafka."): value.strip() for name, value in security.items()}
    for option in _TOKEN_OPTIONS:
        name = option.removeprefix("kafka.")
        if name in dotted:
            dotted["oauth_cb"] = _function(option, dotted.pop(name))
    values = {_RENAMED.get(name, name): value for name, value in translated(dotted).items()}
    config = parse_kafka(SecurityConfig, values)
    config.check()
    _context(config)
    return config


def _function(option: str, text: str) -> Callable[[], Any]:
    module, _, name = text.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        found = None
    if not callable(found):
        raise ValueError(f"{option} = {text!r}: must name a function that every worker can import, module:function")
    return _Imported(text)


class _Imported:
    """A function by its name. Spark pickles only the name for the workers."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> Any:
        module, _, name = self.path.partition(":")
        return getattr(import_module(module), name)()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Imported) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)


@lru_cache(maxsize=8)
def _context(config: SecurityConfig) -> ssl.SSLContext | None:
    from fencepost.client.network.security import ssl_context

    return ssl_context(config)


def tls_transport(sock: socket.socket, config: SecurityConfig, host: str) -> BlockingTls:
    """TLS on a connected blocking socket, after the handshake. Raises AuthenticationError, OSError."""
    from fencepost.spark_connector.network.tls import BlockingTls

    context = _context(config)
    assert context is not None, "the protocol has TLS"
    transport = BlockingTls(sock, context, host)
    transport.blocking_handshake()
    return transport


def new_exchange(config: SecurityConfig) -> Exchange:
    """A new run of the SASL mechanism. Raises AuthenticationError."""
    from fencepost.client.core.sasl import OAUTHBEARER
    from fencepost.client.network.security import exchange_of

    provider = config.sasl_oauth_token_provider
    return exchange_of(config, provider() if provider is not None and config.sasl_mechanism == OAUTHBEARER else None)
