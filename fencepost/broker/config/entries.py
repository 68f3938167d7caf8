"""The configurations of a topic or a broker as DescribeConfigs lists them: value, source, and what stands behind it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fencepost.broker.config.broker_config import ALIASES, SETTINGS, BrokerConfig
from fencepost.broker.config.fields import Kind, Update, format_value
from fencepost.broker.config.topic_config import Dynamic, Origin, broker_origins, chain
from fencepost.broker.config.topic_settings import TOPIC_SETTINGS, TopicSetting
from fencepost.broker.config.without_effect import WITHOUT_EFFECT
from fencepost.protocol.admin_enums import ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One configuration; `synonyms` is everything that has a say, strongest first, in Kafka's words."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    kind: Kind
    documentation: str
    synonyms: tuple[Origin, ...]


def topic_entries(overrides: Mapping[str, str], broker: BrokerConfig, dynamic: Dynamic) -> list[ConfigEntry]:
    """Every configuration of a topic with these overrides, by name."""
    found: list[ConfigEntry] = []
    for name, entry in TOPIC_SETTINGS.items():
        if entry.internal and name not in overrides:
            continue
        origins = chain(name, overrides, broker, dynamic)
        first, setting = origins[0], entry.setting
        shown = tuple(origin for origin in origins if _is_shown(origin, entry))
        found.append(ConfigEntry(name, first.value, first.source, False, setting.kind, setting.doc, shown))
    return found


def _is_shown(origin: Origin, entry: TopicSetting) -> bool:
    """Kafka lists the default of a synonym only where that is the first one: not that of log.retention.hours."""
    if origin.source is not ConfigSource.DEFAULT:
        return True
    return bool(entry.synonyms) and origin.name == entry.synonyms[0].name


def broker_entries(broker: BrokerConfig, dynamic: Dynamic) -> list[ConfigEntry]:
    """Every setting of this broker that may be seen, by name; `broker` is what it was started with."""
    found: list[ConfigEntry] = []
    for name, setting in sorted({**WITHOUT_EFFECT, **SETTINGS}.items()):
        if not setting.served and name not in dynamic.node and name not in dynamic.cluster:
            continue  # Kafka lists it only where somebody set it
        origins = broker_origins([name], broker, dynamic)
        default = format_value(setting.default)
        if default is not None:
            origins.append(Origin(name, default, ConfigSource.DEFAULT))
        strongest = origins[0] if origins else Origin(name, None, ConfigSource.DEFAULT)
        read_only = setting.update is Update.READ_ONLY
        entry = ConfigEntry(
            name, strongest.value, strongest.source, read_only, setting.kind, setting.doc, tuple(origins)
        )
        found.append(entry)
        found += [replace(entry, name=alias) for alias, of in ALIASES.items() if of == name]
    return found


def default_broker_entries(dynamic: Dynamic) -> list[ConfigEntry]:
    """What was altered at run time for all brokers: the resource with an empty name lists nothing else."""
    found: list[ConfigEntry] = []
    for name, value in sorted(dynamic.cluster.items()):
        setting = SETTINGS.get(name) or WITHOUT_EFFECT[name]
        origin = Origin(name, value, ConfigSource.ALL_BROKERS)
        found.append(ConfigEntry(name, value, origin.source, False, setting.kind, setting.doc, (origin,)))
    return found
