"""The settings of a topic or a broker as DescribeConfigs lists them: value, source and synonyms."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fencepost.broker.config.broker_config import ALIASES, SETTINGS, BrokerConfig, setting_of
from fencepost.broker.config.fields import Kind, Update, format_value
from fencepost.broker.config.topic_config import Dynamic, Origin, broker_origins, chain
from fencepost.broker.config.topic_settings import TOPIC_SETTINGS, TopicSetting
from fencepost.broker.config.without_effect import WITHOUT_EFFECT
from fencepost.protocol.admin_enums import ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting; `synonyms` lists all values that could apply, the effective one first, as in Kafka."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    kind: Kind
    documentation: str
    synonyms: tuple[Origin, ...]
    secret: bool = False
    """Whether DescribeConfigs leaves out the values, as Kafka does."""


def topic_entries(overrides: Mapping[str, str], broker: BrokerConfig, dynamic: Dynamic) -> list[ConfigEntry]:
    """Every setting of a topic with these overrides, by name."""
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
    """Kafka lists the default of the first synonym only: not that of log.retention.hours."""
    if origin.source is not ConfigSource.DEFAULT_CONFIG:
        return True
    return bool(entry.synonyms) and origin.name == entry.synonyms[0].name


def broker_entries(broker: BrokerConfig, dynamic: Dynamic) -> list[ConfigEntry]:
    """Every visible setting of this broker, by name; `broker` is the configuration at the start."""
    found: list[ConfigEntry] = []
    known = {**WITHOUT_EFFECT, **SETTINGS}
    for name in (*broker.of_listeners, *dynamic.node, *dynamic.cluster):
        if name not in known and (setting := setting_of(name)) is not None:
            known[name] = setting  # of one listener alone
    for name, setting in sorted(known.items()):
        if not setting.served and name not in dynamic.node and name not in dynamic.cluster:
            continue  # Kafka lists it only if it is set
        origins = broker_origins([name], broker, dynamic)
        default = format_value(setting.default)
        if default is not None:
            origins.append(Origin(name, default, ConfigSource.DEFAULT_CONFIG))
        strongest = origins[0] if origins else Origin(name, None, ConfigSource.DEFAULT_CONFIG)
        read_only = setting.update is Update.READ_ONLY
        entry = ConfigEntry(
            name,
            strongest.value,
            strongest.source,
            read_only,
            setting.kind,
            setting.doc,
            tuple(origins),
            setting.secret,
        )
        found.append(entry)
        found += [replace(entry, name=alias) for alias, of in ALIASES.items() if of == name]
    return found


def default_broker_entries(dynamic: Dynamic) -> list[ConfigEntry]:
    """The settings altered at run time for all brokers: all that the resource with an empty name lists."""
    found: list[ConfigEntry] = []
    for name, value in sorted(dynamic.cluster.items()):
        setting = setting_of(name) or WITHOUT_EFFECT[name]
        origin = Origin(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        found.append(
            ConfigEntry(name, value, origin.source, False, setting.kind, setting.doc, (origin,), setting.secret)
        )
    return found
