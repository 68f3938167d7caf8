"""Settings of one listener, as Kafka names them: `listener.name.NAME.SETTING`, with or without a SASL mechanism."""

import re

from fencepost.broker.config.fields import ConfigError, nearest
from fencepost.broker.config.settings import SETTINGS
from fencepost.broker.security.sasl.exchange import MECHANISMS

PREFIX = "listener.name."
READ_COMMITTED_FILTER = "read.committed.filter"
OF_MECHANISM = ("sasl.jaas.config", "sasl.server.callback.handler.class", "connections.max.reauth.ms")
"""The settings that a mechanism of a listener may have for itself."""
OF_LISTENER = frozenset(
    {
        *(name for name in SETTINGS if name.startswith(("sasl.", "ssl."))),
        *OF_MECHANISM,
        "connection.failed.authentication.delay.ms",
        READ_COMMITTED_FILTER,
    }
)
"""The settings that a listener may have for itself."""
_FORM = re.compile(r"listener\.name\.(?P<listener>[^.]+)\.(?P<rest>.+)", re.IGNORECASE)
_SECRET = re.compile(r"password|jaas|secret|key", re.IGNORECASE)


def base_of(name: str) -> str | None:
    """The setting that a listener's name stands for; None for another name. Raises ConfigError for an unknown one."""
    if not name.lower().startswith(PREFIX):
        return None
    found = _FORM.fullmatch(name)
    rest = found["rest"].lower() if found else ""
    if rest in OF_LISTENER:
        return rest
    for mechanism in MECHANISMS:
        base = rest.removeprefix(f"{mechanism.lower()}.")
        if base != rest and base in OF_MECHANISM:
            return base
    near = nearest(rest, OF_LISTENER)
    raise ConfigError(f"unknown setting of a listener {name}" + (f"; the nearest known one is {near}" if near else ""))


def names_for(listener: str, name: str, mechanism: str | None = None) -> list[str]:
    """The full names that set `name` for a listener, in lower case, the most specific first."""
    prefix = f"{PREFIX}{listener.lower()}."
    of_mechanism = [f"{prefix}{mechanism.lower()}.{name}"] if mechanism is not None else []
    return [*of_mechanism, prefix + name]


def may_be_secret(name: str) -> bool:
    """Whether the value of an unknown setting must not be shown."""
    return _SECRET.search(name) is not None
