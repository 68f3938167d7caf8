"""TLS and SASL on the connector's blocking connections: the client's own options, contexts and mechanisms."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.client.core.sasl import OAuthToken
    from fencepost.client.network.security import SecurityConfig
    from fencepost.protocol.sasl_login import Exchange

_NONCE_BYTES = 24
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


class RequestSender(Protocol):
    """A connection that can send requests before its authentication is complete."""

    def call(self, name: str, request: Any) -> Any:
        """Send a request and return its response."""


class SecurityError(Exception):
    """TLS or SASL failed. Another attempt would fail in the same way."""


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
def _context(config: SecurityConfig) -> Any:
    from fencepost.client.network.security import ssl_context

    return ssl_context(config)


class PlainTransport:
    """A blocking socket with a timeout, without TLS."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.recv_into = sock.recv_into
        self.close = sock.close

    def send_all(self, data: Any) -> None:
        """Send all bytes within the socket's timeout. Raises OSError."""
        self._socket.sendall(data)


Transport = Any
"""PlainTransport or BlockingTls: recv_into, send_all, close."""


def tls_transport(sock: socket.socket, config: SecurityConfig, host: str) -> Transport:
    """TLS on a connected blocking socket, after the handshake. Raises SecurityError, OSError."""
    from fencepost.spark_connector.network.tls import BlockingTls

    transport = BlockingTls(sock, _context(config), host)
    transport.blocking_handshake()
    return transport


def authenticate(connection: RequestSender, config: SecurityConfig) -> float | None:
    """Authenticate by SASL (KIP-43, KIP-152). Returns the session's end by `time.monotonic`, or None for no end.

    Raises SecurityError.
    """
    from fencepost.client.core.scram import ScramError
    from fencepost.protocol.messages import api17_sasl_handshake, api36_sasl_authenticate
    from fencepost.protocol.sasl_login import SaslError

    mechanism = config.sasl_mechanism or ""
    began = time.monotonic()
    handshake = connection.call("SaslHandshake", api17_sasl_handshake.SaslHandshakeRequest(mechanism=mechanism))
    if handshake.error_code != ErrorCode.NONE:
        raise SecurityError(_reason_of_refusal(handshake.error_code, mechanism, handshake.mechanisms))
    try:
        exchange = _exchange(config, mechanism)
        message: bytes | None = exchange.first()
        lifetime_ms = 0
        while message is not None:
            request = api36_sasl_authenticate.SaslAuthenticateRequest(auth_bytes=message)
            response = connection.call("SaslAuthenticate", request)
            if response.error_code != ErrorCode.NONE:
                raise SecurityError(f"{mechanism}: {response.error_message or 'the broker rejected the credentials'}")
            lifetime_ms = response.session_lifetime_ms
            message = exchange.step(bytes(response.auth_bytes))
    except (SaslError, ScramError) as error:
        raise SecurityError(f"{mechanism}: {error}") from None
    return None if lifetime_ms <= 0 else began + lifetime_ms / 1000


def _reason_of_refusal(code: int, mechanism: str, offered: list[str]) -> str:
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        return f"the broker does not support {mechanism}; it supports {', '.join(offered) or 'no mechanism'}"
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        return "this listener does not use SASL: set security.protocol to PLAINTEXT or SSL"
    return "the broker rejected SASL"


def _exchange(config: SecurityConfig, mechanism: str) -> Exchange:
    from fencepost.client.core.sasl import OAUTHBEARER, exchange_for

    return exchange_for(
        mechanism,
        username=config.sasl_username or "",
        password=config.sasl_password or "",
        nonce=secrets.token_urlsafe(_NONCE_BYTES),
        token=_token(config) if mechanism == OAUTHBEARER else None,
    )


def _token(config: SecurityConfig) -> OAuthToken:
    from fencepost.client.core.sasl import OAuthToken

    assert config.sasl_oauth_token_provider is not None, "the configuration was checked"
    given = config.sasl_oauth_token_provider()
    if isinstance(given, OAuthToken):
        return given
    if isinstance(given, str):
        return OAuthToken(given)
    raise SecurityError("the token provider must return a str or an OAuthToken; it cannot be an async function")
