"""The rules between the settings of SASL."""

from collections.abc import Iterator

from fencepost.broker.config.checks import UNSECURED
from fencepost.broker.config.listeners import ListenerValues
from fencepost.broker.security.sasl.exchange import MECHANISMS, OAUTHBEARER, PLAIN
from fencepost.broker.security.sasl.jaas import JaasModule, parse_jaas
from fencepost.extras import install


def jaas_of(config: ListenerValues, listener: str, mechanism: str) -> JaasModule | None:
    text = config.of_listener(listener, "sasl.jaas.config", mechanism)
    return None if text is None else parse_jaas(text)


def sasl_problems(config: ListenerValues) -> Iterator[str]:
    """What is wrong with the mechanisms of the listeners with SASL."""
    for listener in config.client_listeners:
        for problem in _problems(config, listener.name) if listener.protocol.sasl else ():
            yield f"listener {listener.name} uses SASL, but {problem}"


def _problems(config: ListenerValues, listener: str) -> Iterator[str]:
    enabled = config.of_listener(listener, "sasl.enabled.mechanisms")
    if not enabled:
        yield f"no mechanism is enabled: set sasl.enabled.mechanisms to some of {', '.join(MECHANISMS)}"
    name = f"listener.name.{listener.lower()}"
    if PLAIN in enabled:
        module = jaas_of(config, listener, PLAIN)
        if module is None or not module.users:
            yield f'PLAIN has no users: set {name}.plain.sasl.jaas.config with user_NAME="PASSWORD" options'
    if OAUTHBEARER in enabled:
        from fencepost.broker.security.sasl.unsecured import options_problem  # here: few brokers take tokens

        module = jaas_of(config, listener, OAUTHBEARER)
        unsecured = config.of_listener(listener, "sasl.server.callback.handler.class", OAUTHBEARER) == UNSECURED
        if unsecured and (problem := options_problem({} if module is None else module.options)) is not None:
            yield problem
        if not unsecured and config.of_listener(listener, "sasl.oauthbearer.jwks.endpoint.url") is None:
            yield "OAUTHBEARER has no keys: set sasl.oauthbearer.jwks.endpoint.url"
        if not unsecured and not _has_joserfc():
            yield f"OAUTHBEARER needs a library: {install('oauth')}"


def _has_joserfc() -> bool:
    from importlib.util import find_spec

    return find_spec("joserfc") is not None
