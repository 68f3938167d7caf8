"""Kafka's topic-level settings: validation, the broker settings that they fall back to, and the sources of values."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from fencepost.broker.config.broker_config import SETTINGS, BrokerConfig
from fencepost.broker.config.fields import Value, format_value, nearest
from fencepost.broker.config.topic_settings import TOPIC_SETTINGS, Synonym
from fencepost.protocol.admin_enums import ConfigSource


class Origin(NamedTuple):
    """One possible value of a setting: the setting's name there, the value in the topic's unit, and its source."""

    name: str
    value: str | None
    source: ConfigSource


class Dynamic(NamedTuple):
    """The broker settings altered at run time: for this node, and for all nodes."""

    node: Mapping[str, str]
    cluster: Mapping[str, str]


NO_DYNAMIC = Dynamic(MappingProxyType({}), MappingProxyType({}))


def topic_problem(configs: Mapping[str, str]) -> str | None:
    """Why a topic's settings are INVALID_CONFIG, as a message; None if they are valid."""
    parsed: dict[str, Value] = {}
    for name, text in configs.items():
        entry = TOPIC_SETTINGS.get(name)
        if entry is None:
            near = nearest(name, TOPIC_SETTINGS)
            return f"Unknown topic config name: {name}" + (f"; the nearest known one is {near}" if near else "")
        try:
            parsed[name] = entry.setting.parse(text)
        except ValueError as error:
            return f"Invalid value {text} for configuration {name}: {error}"
    low, high = (
        parsed.get(name, TOPIC_SETTINGS[name].setting.default)
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if isinstance(low, int) and isinstance(high, int) and low > high:
        return f"min.compaction.lag.ms ({low}) must not be larger than max.compaction.lag.ms ({high})"
    return None


def chain(name: str, overrides: Mapping[str, str], broker: BrokerConfig, dynamic: Dynamic = NO_DYNAMIC) -> list[Origin]:
    """All values that could apply to a topic setting; the first one is effective.

    The order is Kafka's: the topic, this broker at run time, all brokers at run time, the broker's configuration at the
    start, the default; within each the synonyms in their order.
    """
    entry = TOPIC_SETTINGS[name]
    found: list[Origin] = []
    if name in overrides:
        found.append(Origin(name, overrides[name], ConfigSource.DYNAMIC_TOPIC_CONFIG))
    synonyms = {synonym.name: synonym for synonym in entry.synonyms}
    for origin in broker_origins(synonyms, broker, dynamic):
        if origin.value is not None:
            found.append(origin._replace(value=_in_topic_unit(origin.value, synonyms[origin.name])))
    for synonym in entry.synonyms:
        default = format_value(SETTINGS[synonym.name].default)
        if default is not None:
            found.append(Origin(synonym.name, _in_topic_unit(default, synonym), ConfigSource.DEFAULT_CONFIG))
    if not entry.synonyms:
        found.append(Origin(name, format_value(entry.setting.default), ConfigSource.DEFAULT_CONFIG))
    return found


def broker_origins(names: Iterable[str], broker: BrokerConfig, dynamic: Dynamic) -> list[Origin]:
    """The values set for these broker settings; the first one is effective."""
    layers: tuple[tuple[Mapping[str, str | None], ConfigSource], ...] = (
        (dynamic.node, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (dynamic.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (broker.given, ConfigSource.STATIC_BROKER_CONFIG),
    )
    return [Origin(name, layer[name], source) for layer, source in layers for name in names if name in layer]


def _in_topic_unit(text: str, synonym: Synonym) -> str:
    if synonym.factor == 1:
        return text
    value = int(text)
    return str(value * synonym.factor if value >= 0 else value)


def effective(overrides: Mapping[str, str], broker: BrokerConfig, dynamic: Dynamic = NO_DYNAMIC) -> dict[str, Value]:
    """The effective value of every topic setting, parsed."""
    return {
        name: entry.setting.parse(chain(name, overrides, broker, dynamic)[0].value)
        for name, entry in TOPIC_SETTINGS.items()
    }
