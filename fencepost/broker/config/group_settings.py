"""The settings of one group at run time (config resource GROUP, 32), as Kafka's `GroupConfig`."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, Unpack

from fencepost.broker.config.broker_config import BOUNDED, SETTINGS, BrokerConfig
from fencepost.broker.config.checks import parsed_by
from fencepost.broker.config.entries import ConfigEntry, entry_of
from fencepost.broker.config.fields import BOOLEAN, STRING, Facts, Kind, Setting, Update, Value, format_value, nearest
from fencepost.broker.config.topic_config import Dynamic, Origin, broker_origins
from fencepost.protocol.admin_enums import ConfigSource
from fencepost.protocol.reset_policy import parse_reset


class GroupSetting(NamedTuple):
    """A setting of a group."""

    setting: Setting
    behind: str | None = None
    """The broker's setting that holds for a group without this one. It has a `min.` and a `max.` beside it."""


def _over(name: str, behind: str) -> GroupSetting:
    """A setting that stands over one of the broker, without its highest value: the `max.` beside it bounds a group."""
    return GroupSetting(replace(SETTINGS[behind], name=name, high=None, update=Update.READ_ONLY), behind)


def _own(name: str, kind: Kind, default: Value, **facts: Unpack[Facts]) -> GroupSetting:
    return GroupSetting(Setting(name, kind, default, **facts))


def _share_reset(text: str) -> None:
    """Raises ValueError for what is no place where a share group may begin."""
    try:
        refused = parse_reset(text).kind == "none"
    except ValueError:
        refused = True  # the error's own text offers none
    if refused:
        raise ValueError("must be earliest, latest or by_duration: and an ISO-8601 duration such as P1DT12H")


def _dead_letter_problem(topic: str) -> str | None:
    return "DLQ topic name must not start with '__'" if topic.startswith("__") else None


_ROWS = (
    *(_over(f"{kind}.{name}", f"group.{kind}.{name}") for kind, names in BOUNDED.items() for name in names),
    _own(
        "share.auto.offset.reset",
        STRING,
        "latest",
        check=parsed_by(_share_reset),
        doc="Where a share group begins in a partition: earliest, latest, or by_duration:PnDTnHnMn.nS before now.",
    ),
    _own(
        "share.isolation.level",
        STRING,
        "read_uncommitted",
        choices=("read_committed", "read_uncommitted"),
        doc="Whether a share group gets only transactional records that are committed.",
    ),
    _own(
        "share.renew.acknowledge.enable",
        BOOLEAN,
        True,
        doc="Whether members may renew the lock of a record (KIP-1222).",
    ),
    _own(
        "errors.deadletterqueue.copy.record.enable",
        BOOLEAN,
        False,
        doc="Whether a dead letter of a share group has the key and the value of its record (KIP-1191).",
    ),
    _own(
        "errors.deadletterqueue.topic.name",
        STRING,
        "",
        check=_dead_letter_problem,
        doc="The topic for records that a share group gives up (KIP-1191); empty for none. It needs share.version 2.",
    ),
)
GROUP_SETTINGS: Mapping[str, GroupSetting] = MappingProxyType(
    {row.setting.name: row for row in sorted(_ROWS, key=lambda row: row.setting.name)}
)


def _bound(name: str, bound: str) -> str:
    kind, _, rest = name.partition(".")
    return f"group.{kind}.{bound}.{rest}"


def group_problem(configs: Mapping[str, str], broker: BrokerConfig) -> str | None:
    """Why a group's settings together are INVALID_CONFIG, with Kafka's messages, or None."""
    values: dict[str, Any] = {}
    for name, text in configs.items():
        if name not in GROUP_SETTINGS:
            near = nearest(name, GROUP_SETTINGS)
            return f"Unknown group config name: {name}" + (f"; the nearest known one is {near}" if near else "")
        try:
            values[name] = GROUP_SETTINGS[name].setting.parse(text)
        except ValueError as error:
            return f"Invalid value {text} for configuration {name}: {error}"
        if GROUP_SETTINGS[name].behind is not None and (wrong := _out_of_bounds(name, values[name], broker)):
            return wrong
    for kind in ("consumer", "share"):
        session, heartbeat = (f"{kind}.{rest}" for rest in ("session.timeout.ms", "heartbeat.interval.ms"))
        if session not in values and heartbeat not in values:
            continue
        longest: Any = values.get(session, broker.value(f"group.{session}"))
        if longest <= values.get(heartbeat, broker.value(f"group.{heartbeat}")):
            return f"{session} must be greater than {heartbeat}"
    return None


def _out_of_bounds(name: str, value: int, broker: BrokerConfig) -> str | None:
    low, high = (_bound(name, bound) for bound in ("min", "max"))
    lowest: Any = broker.value(low)
    highest: Any = broker.value(high)
    if value < lowest:
        return (
            f"{name} must be greater than or equal to {low}: {value} is below {lowest}."
            f" Set {lowest} or more, or restart the broker with a lower {low}"
        )
    if value > highest:
        return (
            f"{name} must be less than or equal to {high}: {value} is above {highest}."
            f" Set {highest} or less, or restart the broker with a higher {high}"
        )
    return None


def group_entries(configs: Mapping[str, str], broker: BrokerConfig, dynamic: Dynamic) -> list[ConfigEntry]:
    """Every setting of a group that has set `configs`, by name; `broker` is the configuration at the start."""
    found: list[ConfigEntry] = []
    for name, (setting, behind) in GROUP_SETTINGS.items():
        origins = [Origin(name, configs[name], ConfigSource.DYNAMIC_GROUP_CONFIG)] if name in configs else []
        origins += broker_origins([behind], broker, dynamic) if behind is not None else []
        default = format_value(SETTINGS[behind].default if behind is not None else setting.default)
        origins.append(Origin(behind or name, default, ConfigSource.DEFAULT_CONFIG))
        found.append(entry_of(name, setting, origins))
    return found
