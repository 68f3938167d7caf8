"""The settings of SASL, under Kafka's names, and the rules between them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from fencepost.broker.config.fields import ConfigError, Kind, setting
from fencepost.broker.security.sasl.exchange import MECHANISMS, OAUTHBEARER, PLAIN
from fencepost.broker.security.sasl.jaas import JaasModule, parse_jaas
from fencepost.broker.security.sasl.unsecured import options_problem

if TYPE_CHECKING:
    from fencepost.broker.config.listeners import ClientListener

OF_MECHANISM = ("sasl.jaas.config", "sasl.server.callback.handler.class", "connections.max.reauth.ms")
"""The settings that a mechanism of a listener may have for itself."""
UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
_SECURED = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
HOUR_MS = 60 * 60 * 1000


def _jaas_problem(text: str) -> str | None:
    try:
        parse_jaas(text)
    except ValueError as error:
        return str(error)
    return None


def _handler_problem(name: str) -> str | None:
    if name in ("", UNSECURED, *_SECURED):
        return None
    return f"{name!r} is not a handler of this broker; it has {_SECURED[0]} and {UNSECURED}"


def _url_problem(text: str) -> str | None:
    if urlsplit(text).scheme in ("https", "file"):
        return None
    return f"{text!r} is not the URL of a key set, https://HOST/PATH or file:///PATH"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class SaslSettings:
    """How clients log in on listeners with SASL."""

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        Kind.LIST, (), "The mechanisms by which clients log in (Kafka: GSSAPI, which this broker does not have).",
        choices=MECHANISMS,
    )  # fmt: skip
    sasl_jaas_config: str | None = setting(
        Kind.PASSWORD, None, "The users of PLAIN in JAAS syntax: PlainLoginModule with user_NAME=\"PASSWORD\".",
        nullable=True, check=_jaas_problem,
    )  # fmt: skip
    sasl_server_callback_handler_class: str = setting(
        Kind.CLASS, "", "The validator of OAUTHBEARER: not set, signed tokens only; Kafka's unsecured one, for tests.",
        check=_handler_problem,
    )  # fmt: skip
    connections_max_reauth_ms: int = setting(
        Kind.LONG, 0, "How long a login lasts; then the client logs in again (KIP-368). 0: as long as the connection."
    )
    connection_failed_authentication_delay_ms: int = setting(
        Kind.INT, 100, "How long the answer to a refused login waits.", low=0, high=30_000
    )
    sasl_server_max_receive_size: int = setting(
        Kind.INT,
        32 << 10,
        "The largest request before the login (Kafka: 524288). Large tokens may need more.",
        low=1024,
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        Kind.STRING, None, "The keys that sign tokens: https://... or file:///...", nullable=True, check=_url_problem
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        Kind.LONG, HOUR_MS, "How often the keys are read again.", low=1000
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] | None = setting(
        Kind.LIST, None, "A token must be for one of these audiences.", nullable=True
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        Kind.STRING, None, "A token must be of this issuer.", nullable=True
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(Kind.INT, 30, "How much the issuer's clock may differ.", low=0)
    sasl_oauthbearer_sub_claim_name: str = setting(Kind.STRING, "sub", "The claim that names the user.")
    sasl_oauthbearer_scope_claim_name: str = setting(Kind.STRING, "scope", "The claim that has the scopes.")
    first_user: str | None = setting(
        Kind.STRING, None, "The user to create for SCRAM at a start without any such user.", nullable=True, ours=True
    )
    first_password: str | None = setting(
        Kind.PASSWORD, None, "The password of `first.user`. The environment can give both.", nullable=True, ours=True
    )


class _Config(Protocol):
    """What is read of the broker's configuration."""

    @property
    def client_listeners(self) -> "tuple[ClientListener, ...]": ...

    @property
    def first_user(self) -> str | None: ...

    @property
    def first_password(self) -> str | None: ...

    def of_listener(self, listener: str, name: str, mechanism: str | None = None) -> Any: ...


def jaas_of(config: _Config, listener: str, mechanism: str) -> JaasModule | None:
    """The login module of a mechanism on a listener; None if none is set."""
    text = config.of_listener(listener, "sasl.jaas.config", mechanism)
    return None if text is None else parse_jaas(text)


def check_sasl(config: _Config) -> None:
    """Check the mechanisms of every listener with SASL, and the first user. Raises ConfigError."""
    if bool(config.first_user) != bool(config.first_password):
        raise ConfigError("first.user and first.password belong together: set both or none")
    for listener in config.client_listeners:
        for problem in _problems(config, listener.name) if listener.protocol.sasl else ():
            raise ConfigError(f"listener {listener.name} uses SASL, but {problem}")


def _problems(config: _Config, listener: str) -> Iterator[str]:
    enabled = config.of_listener(listener, "sasl.enabled.mechanisms")
    if not enabled:
        yield f"no mechanism is enabled: set sasl.enabled.mechanisms to some of {', '.join(MECHANISMS)}"
    name = f"listener.name.{listener.lower()}"
    if PLAIN in enabled:
        module = jaas_of(config, listener, PLAIN)
        if module is None or not module.users:
            yield f'PLAIN has no users: set {name}.plain.sasl.jaas.config with user_NAME="PASSWORD" options'
    if OAUTHBEARER in enabled:
        module = jaas_of(config, listener, OAUTHBEARER)
        unsecured = config.of_listener(listener, "sasl.server.callback.handler.class", OAUTHBEARER) == UNSECURED
        if unsecured and (problem := options_problem({} if module is None else module.options)) is not None:
            yield problem
        if not unsecured and config.of_listener(listener, "sasl.oauthbearer.jwks.endpoint.url") is None:
            yield "OAUTHBEARER has no keys: set sasl.oauthbearer.jwks.endpoint.url"
        if not unsecured and not _has_joserfc():
            yield "OAUTHBEARER needs a library: pip install '.[oauth]' in a clone"


def _has_joserfc() -> bool:
    from importlib.util import find_spec

    return find_spec("joserfc") is not None
