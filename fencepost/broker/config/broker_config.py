"""The broker's configuration: Kafka's names, read from defaults, a file, the environment and the command line."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fencepost.broker.config.access_settings import AccessSettings, check_access
from fencepost.broker.config.cluster_settings import ClusterSettings
from fencepost.broker.config.console_settings import ConsoleSettings
from fencepost.broker.config.consumer_groups import ConsumerGroupSettings, group_bounds, problem
from fencepost.broker.config.fields import ConfigError, Setting, Update, Value, format_value, nearest, settings_of
from fencepost.broker.config.limit_settings import LimitSettings
from fencepost.broker.config.listener_settings import base_of, may_be_secret, names_for
from fencepost.broker.config.listeners import (
    ClientListener,
    client_listeners,
    listeners_problem,
    unknown_listener,
    without_controllers,
)
from fencepost.broker.config.metadata_settings import MetadataSettings
from fencepost.broker.config.sasl_settings import SaslSettings, check_sasl
from fencepost.broker.config.settings import CoordinatorSettings, LogSettings, NodeSettings
from fencepost.broker.config.sources import Given, from_assignments, from_environment, from_file
from fencepost.broker.config.tls_settings import TlsListenerSettings, certificate_problem

if TYPE_CHECKING:
    from fencepost.coordinator.group.config import GroupConfig

__all__ = ["SETTINGS", "BrokerConfig", "ConfigError", "dynamic_problem", "group_config", "load_config", "setting_of"]

ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(
    ClusterSettings,
    ConsoleSettings,
    LimitSettings,
    LogSettings,
    MetadataSettings,
    CoordinatorSettings,
    ConsumerGroupSettings,
    NodeSettings,
    AccessSettings,
    SaslSettings,
    TlsListenerSettings,
):
    """All settings of one broker, validated; attributes are Kafka's names with underscores for dots.

    `given` holds the settings that were set (name -> text), `of_listeners` those of single listeners (full name ->
    value), `without_effect` the names of Kafka's settings that were set and have no effect here, `controller_listeners`
    the given listeners for controllers, which are not served.
    """

    given: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    of_listeners: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    without_effect: tuple[str, ...] = ()
    controller_listeners: tuple[str, ...] = ()

    @property
    def client_listeners(self) -> tuple[ClientListener, ...]:
        """The listeners, with their protocols and advertised addresses."""
        return client_listeners(self.listeners, self.advertised_listeners, self.listener_security_protocol_map)

    @property
    def secured(self) -> bool:
        """Whether users log in or have rights: then the metadata decides who may do what."""
        return bool(self.authorizer_class_name) or any(one.protocol.sasl for one in self.client_listeners)

    @property
    def data_directory(self) -> Path | None:
        """The directory of the logs; None for a broker in memory, or of a cluster."""
        return Path(self.log_dirs[0]) if self.storage == "files" and self.cluster_store is None else None

    def value(self, name: str) -> Value:
        """The value of a setting by Kafka's name; raises KeyError for an unknown one."""
        if name not in SETTINGS:
            raise KeyError(name)
        found: Value = getattr(self, name.replace(".", "_"))
        return found

    def of_listener(self, listener: str, name: str, mechanism: str | None = None) -> Any:
        """The value of a setting for one listener, or for a SASL mechanism on it: the most specific one."""
        for full_name in names_for(listener, name, mechanism):
            if full_name in self.of_listeners:
                return self.of_listeners[full_name]
        return self.value(name)

    def text(self, name: str) -> str | None:
        """Like `value`, in Kafka's spelling."""
        return format_value(self.value(name))

    def with_dynamic(self, cluster: Mapping[str, str], node: Mapping[str, str]) -> "BrokerConfig":
        """This configuration, overridden by the settings altered at run time: of the cluster, then of this node."""
        given = {**cluster, **node}
        values: dict[str, Any] = {
            name.replace(".", "_"): SETTINGS[name].parse(text) for name, text in given.items() if name in SETTINGS
        }
        own = {
            name.lower(): found.parse(given[name]) for name in given if (found := _of_one_listener(name)) is not None
        }
        return dataclasses.replace(self, **values, of_listeners={**self.of_listeners, **own})


SETTINGS: Mapping[str, Setting] = MappingProxyType(settings_of(BrokerConfig))
"""Every setting of the broker by its name."""


def _of_one_listener(name: str) -> Setting | None:
    """The setting of a name with a listener's prefix; None without a prefix, or for an unknown setting."""
    try:
        base = base_of(name)
    except ConfigError:
        return None
    return None if base is None else SETTINGS[base]


def setting_of(name: str) -> Setting | None:
    """The setting of a name, which may have a listener's prefix; None for an unknown name."""
    return SETTINGS.get(name) or _of_one_listener(name)


def load_config(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    assignments: Iterable[str] = (),
    flags: Mapping[str, object] | None = None,
) -> BrokerConfig:
    """Build a configuration; later sources win: defaults, `file`, `environ`, `assignments` (--set), `flags`.

    `flags` are explicit options of the command, by setting name; None values are skipped. Raises ConfigError for an
    unknown name or an invalid value; its text names both, the origin and the valid values.
    """
    sources = [
        *(from_file(file) if file is not None else ()),
        *from_environment(environ or {}),
        *from_assignments(assignments),
        *(Given(name, raw, "command line") for name, raw in (flags or {}).items() if raw is not None),
    ]
    values: dict[str, Value] = {}
    without_effect: dict[str, None] = {}
    of_listeners: dict[str, Value] = {}
    entries, controller_listeners = without_controllers(sources)
    for entry in entries:
        name = ALIASES.get(entry.name, entry.name)
        if (base := base_of(name)) is not None:
            of_listeners[name.lower()] = check_setting({name: SETTINGS[base]}, entry)
        elif name not in SETTINGS and is_without_effect(name):
            without_effect[name] = None
        else:
            values[name] = check_setting(SETTINGS, entry._replace(name=name))
    _check_together(values)
    given = MappingProxyType({name: format_value(value) for name, value in {**values, **of_listeners}.items()})
    attributes: dict[str, Any] = {name.replace(".", "_"): value for name, value in values.items()}
    config = BrokerConfig(
        given=given,
        of_listeners=MappingProxyType(of_listeners),
        without_effect=tuple(without_effect),
        controller_listeners=controller_listeners,
        **attributes,
    )
    check_sasl(config)
    for listener in config.client_listeners:
        if (wrong := certificate_problem(listener, config)) is not None:
            raise ConfigError(wrong)
    if (unknown := unknown_listener(of_listeners, config.listeners)) is not None:
        raise ConfigError(unknown)
    return config


def is_without_effect(name: str) -> bool:
    """Whether Kafka has a setting of this name that has no effect here: the broker accepts it with a warning."""
    from fencepost.broker.config.without_effect import WITHOUT_EFFECT  # here: few brokers are given any

    return name in WITHOUT_EFFECT


def check_setting(known: Mapping[str, Setting], entry: Given) -> Value:
    """The parsed value of one entry; raises ConfigError."""
    setting = known.get(entry.name)
    if setting is None:
        near = nearest(entry.name, known)
        hint = f"; the nearest known one is {near} ({known[near].expected})" if near else ""
        shown = "..." if may_be_secret(entry.name) else repr(entry.raw)
        raise ConfigError(f"unknown setting {entry.name} = {shown} from {entry.origin}{hint}")
    try:
        return setting.parse(entry.raw)
    except ValueError as error:
        raise ConfigError(f"setting {entry.name} from {entry.origin}: {error}") from error


def _check_together(values: Mapping[str, Value]) -> None:
    """Check Kafka's rules between settings; raises ConfigError."""

    def get(name: str) -> Any:
        return values.get(name, SETTINGS[name].default)

    if get("group.min.session.timeout.ms") > get("group.max.session.timeout.ms"):
        raise ConfigError("group.min.session.timeout.ms must not be larger than group.max.session.timeout.ms")
    if (wrong := problem(get)) is not None:
        raise ConfigError(wrong)
    check_access(values)
    if (wrong := listeners_problem(get, lambda name: values.get(name) is not None)) is not None:
        raise ConfigError(wrong)


def dynamic_problem(name: str, text: str | None, *, for_all: bool = False) -> str | None:
    """Why a setting cannot be altered at run time to `text` (None: reset to its default), or None.

    `for_all`: for all brokers, not for one.
    """
    from fencepost.broker.config.without_effect import WITHOUT_EFFECT

    setting = setting_of(name) or WITHOUT_EFFECT.get(name)
    if setting is None:
        near = nearest(name, SETTINGS)
        return f"Unknown broker config {name}" + (f"; the nearest known one is {near}" if near else "")
    if setting.update is Update.READ_ONLY:
        return f"Cannot update these configs dynamically: [{name}]"
    if setting.update is Update.PER_BROKER and for_all and text is not None:
        return f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]"
    if text is not None:
        try:
            setting.parse(text)
        except ValueError as error:
            return f"Invalid value {text} for configuration {name}: {error}"
    return None


def group_config(config: BrokerConfig) -> "GroupConfig":
    """The group coordinator's settings, under the same names."""
    from fencepost.coordinator.group.config import GroupConfig

    own = {one.name for one in dataclasses.fields(GroupConfig)} - {"group_consumer_bounds"}
    share: dict[str, Any] = {name: getattr(config, name) for name in own}
    share["group_consumer_migration_policy"] = config.group_consumer_migration_policy.lower()
    return GroupConfig(**share, group_consumer_bounds=group_bounds(config))
