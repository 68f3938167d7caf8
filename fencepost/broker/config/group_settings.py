"""The settings of one group at run time (config resource GROUP, 32); each overrides a setting of the broker."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fencepost.broker.config.broker_config import SETTINGS, BrokerConfig
from fencepost.broker.config.entries import ConfigEntry, entry_of
from fencepost.broker.config.fields import format_value
from fencepost.broker.config.topic_config import Dynamic, Origin, broker_origins
from fencepost.protocol.admin_enums import ConfigSource

GROUP_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "consumer.assignment.interval.ms": "group.consumer.assignment.interval.ms",
        "consumer.heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms": "group.consumer.session.timeout.ms",
    }
)
"""The broker setting that each overrides."""


def group_problem(configs: Mapping[str, str], broker: BrokerConfig) -> str | None:
    """Why a group's settings together are INVALID_CONFIG, with Kafka's messages, or None."""
    values: dict[str, Any] = {name: broker.value(behind) for name, behind in GROUP_SETTINGS.items()}
    for name, text in configs.items():
        if name not in GROUP_SETTINGS:
            return f"Unknown group config name: {name}"
        try:
            values[name] = SETTINGS[GROUP_SETTINGS[name]].parse(text)
        except ValueError as error:
            return f"Invalid value {text} for configuration {name}: {error}"
        low, high = (f"group.consumer.{bound}.{name.removeprefix('consumer.')}" for bound in ("min", "max"))
        if values[name] < (lowest := broker.value(low)):
            return (
                f"{name} must be greater than or equal to {low}: {values[name]} is below {lowest}."
                f" Set {lowest} or more, or restart the broker with a lower {low}"
            )
        if values[name] > (highest := broker.value(high)):
            return (
                f"{name} must be less than or equal to {high}: {values[name]} is above {highest}."
                f" Set {highest} or less, or restart the broker with a higher {high}"
            )
    if values["consumer.session.timeout.ms"] <= values["consumer.heartbeat.interval.ms"]:
        return "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
    return None


def group_entries(configs: Mapping[str, str], broker: BrokerConfig, dynamic: Dynamic) -> list[ConfigEntry]:
    """Every setting of a group that has set `configs`, by name; `broker` is the configuration at the start."""
    found: list[ConfigEntry] = []
    for name, behind in GROUP_SETTINGS.items():
        origins = [Origin(name, configs[name], ConfigSource.DYNAMIC_GROUP_CONFIG)] if name in configs else []
        origins += broker_origins([behind], broker, dynamic)
        origins.append(Origin(behind, format_value(SETTINGS[behind].default), ConfigSource.DEFAULT_CONFIG))
        found.append(entry_of(name, SETTINGS[behind], origins))
    return found
