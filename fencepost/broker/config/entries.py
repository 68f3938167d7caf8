"""The settings of a topic or a broker as DescribeConfigs lists them: value, source and synonyms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fencepost.broker.config.broker_config import ALIASES, SETTINGS, BrokerConfig, setting_of
from fencepost.broker.config.fields import Kind, Setting, Update, format_value
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


def entry_of(name: str, setting: Setting, origins: Sequence[Origin], *, read_only: bool = False) -> ConfigEntry:
    """The entry of a setting with these values, the effective one first; without a value if there is none."""
    value, source = origins[0][1:] if origins else (None, ConfigSource.DEFAULT_CONFIG)
    return ConfigEntry(name, value, source, read_only, setting.kind, setting.doc, tuple(origins), setting.secret)


def topic_entries(overrides: Mapping[str, str], broker: BrokerConfig, dynamic: Dynamic) -> list[ConfigEntry]:
    """Every setting of a topic with these overrides, by name."""
    found: list[ConfigEntry] = []
    for name, entry in TOPIC_SETTINGS.items():
        if entry.internal and name not in overrides:
            continue
        origins = chain(name, overrides, broker, dynamic)
        shown = tuple(origin for origin in origins if _is_shown(origin, entry))
        found.append(replace(entry_of(name, entry.setting, origins), synonyms=shown))
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
        entry = entry_of(name, setting, origins, read_only=setting.update is Update.READ_ONLY)
        found.append(entry)
        found += [replace(entry, name=alias) for alias, of in ALIASES.items() if of == name]
    return found


def default_broker_entries(dynamic: Dynamic) -> list[ConfigEntry]:
    """The settings altered at run time for all brokers: all that the resource with an empty name lists."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        entry_of(name, setting_of(name) or WITHOUT_EFFECT[name], [Origin(name, value, source)])
        for name, value in sorted(dynamic.cluster.items())
    ]
