"""Subscriptions of client metrics (config resource CLIENT_METRICS, 16; KIP-714): only stored and listed.

This broker collects no metrics from clients, like Kafka without a telemetry plugin.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from fencepost.broker.config.entries import ConfigEntry, entry_of
from fencepost.broker.config.fields import INT, LIST, Setting, format_value
from fencepost.broker.config.topic_config import Origin
from fencepost.broker.config.without_effect import NO_EFFECT
from fencepost.coordinator.metadata.commands import Outcome
from fencepost.protocol.admin_enums import ConfigSource
from fencepost.protocol.errors import ErrorCode

INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
_MATCHED = (
    *("client_id", "client_instance_id", "client_software_name", "client_software_version"),
    *("client_source_address", "client_source_port"),
)
_UNASKED = f"{NO_EFFECT}the broker asks clients for no metrics. "
_ROWS = (
    Setting("interval.ms", INT, 300_000, f"{_UNASKED}How often clients would push them."),
    Setting("match", LIST, (), f"{_UNASKED}Which clients would: what=EXPRESSION, all of them must match."),
    Setting("metrics", LIST, (), f"{_UNASKED}Which ones: prefixes of names, or * for all."),
)
METRICS_SETTINGS: Mapping[str, Setting] = MappingProxyType({setting.name: setting for setting in _ROWS})


def metrics_problem(configs: Mapping[str, str]) -> Outcome | None:
    """What is wrong with all settings of a subscription together, with Kafka's codes and messages, or None."""
    for name, text in configs.items():
        setting = METRICS_SETTINGS.get(name)
        if setting is None:
            return Outcome(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        try:
            value = setting.parse(text)
        except ValueError as error:
            return Outcome(ErrorCode.INVALID_CONFIG, f"Invalid value {text} for configuration {name}: {error}")
        if isinstance(value, int) and not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
            bounds = f"interval must be between {INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)"
            return Outcome(ErrorCode.INVALID_REQUEST, f"Invalid value {value} for {name}, {bounds}")
        for pattern in value if name == "match" and isinstance(value, tuple) else ():
            if not _is_pattern(pattern):
                return Outcome(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
    return None


def _is_pattern(text: str) -> bool:
    what, equals, expression = text.partition("=")
    if not equals or what.strip() not in _MATCHED:
        return False
    try:
        re.compile(expression.strip())
    except (re.error, OverflowError, RecursionError):  # the last two: too large, too deep
        return False
    return True


def metrics_entries(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a subscription that has set `configs`, by name; a default is no synonym, as in Kafka."""
    found = []
    for name, setting in METRICS_SETTINGS.items():
        given = [Origin(name, configs[name], ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG)] if name in configs else []
        default = Origin(name, format_value(setting.default), ConfigSource.DEFAULT_CONFIG)
        found.append(replace(entry_of(name, setting, given or [default]), synonyms=tuple(given)))
    return found
