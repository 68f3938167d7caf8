"""The security options of a client: TLS and SASL."""

import os
import re
import secrets
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

# ruff: noqa: RUF009 - `option` makes dataclass fields
from dataclasses import dataclass
from typing import Any

from fencepost.client.core.sasl import MECHANISMS, OAUTHBEARER, OAuthToken, exchange_for
from fencepost.client.errors import AuthenticationError, ConfigError
from fencepost.client.options import Secret, boolean, choice, function, option, secret, text
from fencepost.pem_file import as_file
from fencepost.protocol.sasl_login import Exchange, SaslError

TokenProvider = Callable[[], Awaitable[str | OAuthToken] | str | OAuthToken]
_NONCE_BYTES = 24
PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = "plaintext", "ssl", "sasl_plaintext", "sasl_ssl"
_TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def _versions(value: Any) -> tuple[str, ...]:
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
    if not names or any(name not in _TLS_VERSIONS for name in names):
        raise ValueError(f"must name some of {', '.join(_TLS_VERSIONS)}")
    return tuple(names)


def _context(value: Any) -> ssl.SSLContext:
    if not isinstance(value, ssl.SSLContext):
        raise ValueError("must be an ssl.SSLContext")
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class SecurityConfig:
    """The client's identity, and the brokers it trusts. Files and strings are PEM; passwords are never shown."""

    security_protocol: str = option(
        PLAINTEXT,
        choice(PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL),
        '"plaintext", "ssl", "sasl_plaintext" or "sasl_ssl", as the listener of the broker says.',
    )
    ssl_cafile: str | None = option(
        None, text, "The file with the certificates (PEM) of trusted authorities. None: the system's."
    )
    ssl_ca_pem: str | None = option(None, text, "The certificates (PEM) of trusted authorities as a string.")
    ssl_certfile: str | None = option(
        None, text, "The file with the client's certificate (PEM), for brokers that want one."
    )
    ssl_keyfile: str | None = option(None, text, "The file with the private key (PEM) of the client's certificate.")
    ssl_certificate_pem: str | None = option(None, text, "The client's certificate (PEM) as a string.")
    ssl_key_pem: Secret | None = option(
        None, secret, "The private key (PEM) of the client's certificate as a string.", secret=True
    )
    ssl_key_password: Secret | None = option(None, secret, "The password of an encrypted private key.", secret=True)
    ssl_check_hostname: bool = option(True, boolean, "The broker's certificate must be for its host name.")
    ssl_verify: bool = option(True, boolean, "The broker's certificate must be signed by a trusted authority.")
    ssl_ciphers: str | None = option(
        None, text, "OpenSSL's names of the allowed ciphers, for TLS 1.2. None: Python's choice."
    )
    ssl_enabled_protocols: tuple[str, ...] = option(tuple(_TLS_VERSIONS), _versions, "The allowed versions of TLS.")
    ssl_context: ssl.SSLContext | None = option(
        None, _context, "An `ssl.SSLContext` in place of all other `ssl_` options."
    )
    sasl_mechanism: str | None = option(
        None, choice(*MECHANISMS), '"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512" or "OAUTHBEARER".'
    )
    sasl_username: str | None = option(None, text, "The user, for PLAIN and SCRAM.")
    sasl_password: Secret | None = option(None, secret, "The user's password, for PLAIN and SCRAM.", secret=True)
    sasl_oauth_token_provider: TokenProvider | None = option(
        None, function, "A function that returns a token (str or OAuthToken), for OAUTHBEARER. It may be async."
    )

    @property
    def tls(self) -> bool:
        return self.security_protocol in (SSL, SASL_SSL)

    @property
    def sasl(self) -> bool:
        return self.security_protocol in (SASL_PLAINTEXT, SASL_SSL)

    def check(self) -> None:
        """Raise ConfigError for options that contradict each other."""
        if self.sasl:
            if self.sasl_mechanism is None:
                raise ConfigError(f"security_protocol {self.security_protocol!r} needs sasl_mechanism")
            if self.sasl_mechanism == OAUTHBEARER:
                if self.sasl_oauth_token_provider is None:
                    raise ConfigError("OAUTHBEARER needs sasl_oauth_token_provider")
            elif self.sasl_username is None or self.sasl_password is None:
                raise ConfigError(f"{self.sasl_mechanism} needs sasl_username and sasl_password")
        elif self.sasl_mechanism is not None or self.sasl_username is not None:
            raise ConfigError(
                f"SASL options need security_protocol 'sasl_ssl' or 'sasl_plaintext', not {self.security_protocol!r}"
            )
        if not self.tls and (self.ssl_context or self.ssl_cafile or self.ssl_ca_pem or self.ssl_certfile):
            raise ConfigError(f"ssl options need security_protocol 'ssl' or 'sasl_ssl', not {self.security_protocol!r}")
        if (self.ssl_keyfile or self.ssl_key_pem) and not (self.ssl_certfile or self.ssl_certificate_pem):
            raise ConfigError("a client's key needs its certificate: give ssl_certfile or ssl_certificate_pem")


def exchange_of(config: SecurityConfig, given: Any) -> Exchange:
    """A new run of the mechanism; `given` is the token provider's result. Raises AuthenticationError."""
    mechanism = config.sasl_mechanism or ""
    token = OAuthToken(given) if isinstance(given, str) else given
    if mechanism == OAUTHBEARER and not isinstance(token, OAuthToken):
        kind = type(given).__name__
        raise AuthenticationError(f"sasl_oauth_token_provider must return a str or an OAuthToken, not {kind}")
    try:
        return exchange_for(
            mechanism,
            username=config.sasl_username or "",
            password=config.sasl_password or "",
            nonce=secrets.token_urlsafe(_NONCE_BYTES),
            token=token,
        )
    except SaslError as error:
        raise AuthenticationError(f"{mechanism}: {error}") from None


def ssl_context(config: SecurityConfig) -> ssl.SSLContext | None:
    """The SSLContext of the client's connections, or None. Raises ConfigError for options that OpenSSL rejects."""
    if not config.tls:
        return None
    if config.ssl_context is not None:
        return config.ssl_context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.ssl_check_hostname and config.ssl_verify
    if not config.ssl_verify:
        context.verify_mode = ssl.CERT_NONE
    versions = [_TLS_VERSIONS[name] for name in config.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if config.ssl_ciphers is not None:
        with _as_config_error("ssl_ciphers"):
            context.set_ciphers(config.ssl_ciphers)
    if config.ssl_cafile is None and config.ssl_ca_pem is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        with _as_config_error(_named("ssl_cafile", config.ssl_cafile) or "ssl_ca_pem"):
            context.load_verify_locations(cafile=config.ssl_cafile, cadata=config.ssl_ca_pem)
    _load_own_certificate(context, config)
    return context


def _load_own_certificate(context: ssl.SSLContext, config: SecurityConfig) -> None:
    if not config.ssl_certfile and not config.ssl_certificate_pem:
        return

    def password() -> str:
        if config.ssl_key_password is None:
            raise ConfigError("the client's key is encrypted: give ssl_key_password")
        return str(config.ssl_key_password)

    files = _named("ssl_certfile", config.ssl_certfile), _named("ssl_keyfile", config.ssl_keyfile)
    with _as_config_error(" with ".join(filter(None, files)) or "ssl_certificate_pem"):
        if config.ssl_certificate_pem is None and config.ssl_key_pem is None:
            context.load_cert_chain(config.ssl_certfile or "", config.ssl_keyfile, password)
            return
        certificate = config.ssl_certificate_pem or _content(config.ssl_certfile)
        key = config.ssl_key_pem or _content(config.ssl_keyfile)
        with as_file(f"{certificate}\n{key}\n") as path:
            context.load_cert_chain(path, None, password)


def _named(option: str, path: str | None) -> str:
    """The option with its file, absolute because the reader may expect another directory; '' without a file."""
    return f"{option} {os.path.abspath(path)}" if path is not None else ""


@contextmanager
def _as_config_error(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError
        if isinstance(error, ConfigError):
            raise
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{what} cannot be used: {reason}") from None


def _content(path: str | None) -> str:
    if path is None:
        return ""
    with open(path, encoding="ascii") as file:
        return file.read()


DOTTED = {
    "metadata.broker.list": "bootstrap_servers",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_username",
    "sasl.password": "sasl_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.truststore.certificates": "ssl_ca_pem",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.keystore.certificate.chain": "ssl_certificate_pem",
    "ssl.key.location": "ssl_keyfile",
    "ssl.keystore.key": "ssl_key_pem",
    "ssl.cipher.suites": "ssl_ciphers",
    "enable.ssl.certificate.verification": "ssl_verify",
    "oauth_cb": "sasl_oauth_token_provider",
}
"""Other names for one option: Kafka's Java client's, and librdkafka's."""
_JAAS = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def translated(dotted: Mapping[str, Any]) -> dict[str, Any]:
    """Security options by their names in a property file -> by this client's; others unchanged. Raises ConfigError."""
    result: dict[str, Any] = {}
    for name, value in dotted.items():
        if name in ("ssl.truststore.type", "ssl.keystore.type"):
            if str(value).upper() != "PEM":
                raise ConfigError(f"{name}: must be PEM; convert {value} with `openssl pkcs12 -nodes` or `keytool`")
        elif name == "ssl.endpoint.identification.algorithm":
            if str(value).lower() not in ("", "none", "https"):
                raise ConfigError(f"{name}: must be https or none")
            result["ssl.check.hostname"] = str(value).lower() == "https"
        elif name == "sasl.jaas.config":
            found = {key: re.sub(r"\\(.)", r"\1", said) for key, said in _JAAS.findall(str(value))}
            if set(found) != {"username", "password"}:
                raise ConfigError(f'{name}: must contain username="..." and password="..."')
            result.update({f"sasl.{key}": said for key, said in found.items()})
        else:
            result[name] = value
    return {DOTTED.get(name, name).replace(".", "_"): value for name, value in result.items()}
