"""The broker's configuration: Kafka's names, read from defaults, a file, the environment and the command line."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fencepost.broker.config.fields import ConfigError, Setting, Update, Value, format_value, nearest
from fencepost.broker.config.listeners import (
    LISTENER_PREFIX,
    ClientListener,
    client_listeners,
    listeners_problems,
    unknown_listeners,
    without_controllers,
)
from fencepost.broker.config.sasl_settings import sasl_problems
from fencepost.broker.config.settings import SETTINGS, Settings
from fencepost.broker.config.sources import Given, from_assignments, from_environment, from_file
from fencepost.broker.config.tls_settings import certificate_problem
from fencepost.broker.security.sasl.exchange import MECHANISMS

__all__ = ["SETTINGS", "BrokerConfig", "ConfigError", "dynamic_problem", "load_config", "setting_of"]

ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
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
_OF_MEMBERS = ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms")
BOUNDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "consumer": _OF_MEMBERS,
        "share": (*_OF_MEMBERS, "delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"),
    }
)
"""The settings `group.KIND.NAME` with a `group.KIND.min.NAME` and a `.max.`; a group may have a `KIND.NAME` itself."""
_FORM = re.compile(r"listener\.name\.(?P<listener>[^.]+)\.(?P<rest>.+)", re.IGNORECASE)
_SECRET = re.compile(r"password|jaas|secret|key", re.IGNORECASE)


def _base_of(name: str) -> str | None:
    """The setting that a listener's name stands for; None for another name. Raises ConfigError for an unknown one."""
    if not name.lower().startswith(LISTENER_PREFIX):
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


def _names_for(listener: str, name: str, mechanism: str | None = None) -> list[str]:
    """The full names that set `name` for a listener, in lower case, the most specific first."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    of_mechanism = [f"{prefix}{mechanism.lower()}.{name}"] if mechanism is not None else []
    return [*of_mechanism, prefix + name]


@dataclass(frozen=True, kw_only=True, init=False, eq=False)
class BrokerConfig(Settings):
    """All settings of one broker, validated; an attribute for each row of the table.

    `given` holds the settings that were set (name -> text), `of_listeners` those of single listeners (full name ->
    value), `without_effect` the names of Kafka's settings that were set and have no effect here, `controller_listeners`
    the given listeners for controllers, which are not served.
    """

    given: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    of_listeners: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    without_effect: tuple[str, ...] = ()
    controller_listeners: tuple[str, ...] = ()

    def __init__(self, **values: Any) -> None:
        """Take fields by keyword. Not generated: to compile one of 190 parameters takes 8 ms of every start."""
        for one in dataclasses.fields(self):
            default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
            object.__setattr__(self, one.name, values.pop(one.name, default))
        if values:
            raise TypeError(f"BrokerConfig has no fields {', '.join(values)}")

    @property
    def client_listeners(self) -> tuple[ClientListener, ...]:
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
        for full_name in _names_for(listener, name, mechanism):
            if full_name in self.of_listeners:
                return self.of_listeners[full_name]
        return self.value(name)

    def read_committed_filter_for(self, listener: str, client_id: str | None) -> str | None:
        """Who leaves aborted records out of all fetches of a client on a listener; None: what each topic says.

        A client of `read.committed.filter.client.ids` comes first, then `listener.name.NAME.read.committed.filter`.
        """
        if self.read_committed_filter_client_ids and client_id in self.read_committed_filter_client_ids:
            return "broker"
        if not self.of_listeners:
            return None
        found = self.of_listeners.get(_names_for(listener, READ_COMMITTED_FILTER)[0])
        return None if found is None else str(found)

    def text(self, name: str) -> str | None:
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


def _of_one_listener(name: str) -> Setting | None:
    """The setting of a name with a listener's prefix; None without a prefix, or for an unknown setting."""
    try:
        base = _base_of(name)
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

    `flags` are explicit options of the command, by setting name; None values are skipped. Raises ConfigError for
    unknown names and invalid values; its text names both, the origin and the valid values, in a line for each fault.
    Settings that do not go together are looked for only if each by itself is valid.
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
    faults: list[str] = []
    entries, controller_listeners = without_controllers(sources)
    for entry in entries:
        name = ALIASES.get(entry.name, entry.name)
        try:
            if (base := _base_of(name)) is not None:
                of_listeners[name.lower()] = check_setting({name: SETTINGS[base]}, entry)
            elif name not in SETTINGS and is_without_effect(name):
                without_effect[name] = None
            else:
                values[name] = check_setting(SETTINGS, entry._replace(name=name))
        except ConfigError as error:
            faults.append(str(error))
    _refuse(faults)
    given = MappingProxyType({name: format_value(value) for name, value in {**values, **of_listeners}.items()})
    attributes: dict[str, Any] = {name.replace(".", "_"): value for name, value in values.items()}
    config = BrokerConfig(
        given=given,
        of_listeners=MappingProxyType(of_listeners),
        without_effect=tuple(without_effect),
        controller_listeners=controller_listeners,
        **attributes,
    )
    faults += _problems_together(config.value)
    in_listeners = list(listeners_problems(config.value, lambda name: values.get(name) is not None))
    _refuse([*faults, *(in_listeners or _problems_of_each(config))])
    return config


def _refuse(faults: Iterable[str]) -> None:
    """Raise ConfigError if there are faults."""
    if text := "\n  ".join(faults):
        raise ConfigError(text)


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
        shown = "..." if _SECRET.search(entry.name) else repr(entry.raw)
        raise ConfigError(f"unknown setting {entry.name} = {shown} from {entry.origin}{hint}")
    try:
        return setting.parse(entry.raw)
    except ValueError as error:
        raise ConfigError(f"setting {entry.name} from {entry.origin}: {error}") from error


def _problems_together(get: Callable[[str], Any]) -> Iterator[str]:
    """Kafka's rules between settings: what is wrong."""
    if get("group.min.session.timeout.ms") > get("group.max.session.timeout.ms"):
        yield "group.min.session.timeout.ms must not be larger than group.max.session.timeout.ms"
    yield from _groups_problems(get)
    useless = [name for name in ("super.users", "allow.everyone.if.no.acl.found") if get(name)]
    if useless and not get("authorizer.class.name"):
        yield f"{useless[0]} has no effect without authorizer.class.name; set that to standard"
    if bool(get("first.user")) != bool(get("first.password")):
        yield "first.user and first.password belong together: set both or none"


def _problems_of_each(config: BrokerConfig) -> Iterator[str]:
    """What listeners lack, which are right together."""
    yield from sasl_problems(config)
    yield from filter(None, (certificate_problem(listener, config) for listener in config.client_listeners))
    yield from unknown_listeners(config.of_listeners, config.listeners)


def _groups_problems(get: Callable[[str], Any]) -> Iterator[str]:
    """Kafka's rules of `GroupCoordinatorConfig.checkConstraints` and `ShareGroupConfig.validate`."""
    for kind, names in BOUNDED.items():
        for name in names:
            chosen, low, high = (f"group.{kind}.{bound}{name}" for bound in ("", "min.", "max."))
            if get(high) < get(low):
                yield f"{high} must be greater than or equal to {low}"
            elif get(chosen) < get(low):
                yield f"{chosen} must be greater than or equal to {low}"
            elif get(chosen) > get(high):
                yield f"{chosen} must be less than or equal to {high}"
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if get(heartbeat) >= get(session):
            yield f"{heartbeat} must be less than {session}"
    if get("group.share.max.share.sessions") < get("group.share.max.size"):
        yield "group.share.max.share.sessions must be greater than or equal to group.share.max.size"


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
