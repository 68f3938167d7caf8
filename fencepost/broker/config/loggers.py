"""Levels of the process's loggers at run time (config resource BROKER_LOGGER, 8; KIP-412).

Loggers have their Python names, and `root`. Levels have Kafka's names; a restart resets them.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence

from fencepost.broker.config.entries import ConfigEntry
from fencepost.broker.config.fields import Kind
from fencepost.coordinator.metadata.commands import DONE, ConfigEdit, ConfigEdits, Outcome
from fencepost.protocol.admin_enums import ConfigOperation, ConfigSource
from fencepost.protocol.errors import ErrorCode

ROOT = "root"
_TRACE = 5
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": _TRACE,
    "WARN": logging.WARNING,
}
"""Kafka's names for levels; this broker logs nothing at TRACE."""

logger = logging.getLogger(__name__)


def logger_entries() -> list[ConfigEntry]:
    """Every logger with its effective level, by name."""
    names = [ROOT, *sorted(name for name, one in _loggers().items() if isinstance(one, logging.Logger))]
    return [
        ConfigEntry(name, _level_of(name), ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG, False, Kind.UNKNOWN, "", ())
        for name in names
    ]


def logger_name_problem(name: str, node_id: int) -> Outcome | None:
    """Why `name` is not this broker's id, with Kafka's messages for DescribeConfigs, or None."""
    if not name:
        return Outcome(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if not name.lstrip("-").isdigit():
        return Outcome(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if name != str(node_id):
        return Outcome(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id} but received {name}")
    return None


def alter_loggers(change: ConfigEdits, node_id: int, validate_only: bool) -> Outcome:
    """Set or delete levels (a deleted level is inherited): all edits of the resource or none."""
    name = change.resource_name
    if not name.lstrip("-").isdigit():
        return Outcome(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if name != str(node_id):
        return Outcome(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {name}")
    problem = _problem(change.edits)
    if problem is not None:
        return problem
    for edit in () if validate_only else change.edits:
        level = LEVELS[edit.value or ""] if edit.operation == ConfigOperation.SET else logging.NOTSET
        _logger(edit.name).setLevel(level)
        logger.info("level of a logger altered logger=%s level=%s", edit.name, _level_of(edit.name))
    return DONE


def _problem(edits: Sequence[ConfigEdit]) -> Outcome | None:
    if max(Counter(edit.name for edit in edits).values(), default=0) > 1:
        return Outcome(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [edit.name for edit in edits if edit.value is None and edit.operation != ConfigOperation.DELETE]
    if nulls:
        return Outcome(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
    checks: tuple[Callable[[ConfigEdit], Outcome | None], ...] = (_operation_problem, _target_problem)
    return next((found for edit in edits for check in checks if (found := check(edit)) is not None), None)


def _operation_problem(edit: ConfigEdit) -> Outcome | None:
    if edit.operation not in list(ConfigOperation):
        return Outcome(ErrorCode.INVALID_REQUEST, f"Unknown operations type {edit.operation}")
    operation = ConfigOperation(edit.operation)
    if operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        why = f"{operation.name} operation is not allowed for the BROKER_LOGGER resource"
        return Outcome(ErrorCode.INVALID_REQUEST, why)
    return None


def _target_problem(edit: ConfigEdit) -> Outcome | None:
    if edit.name != ROOT and not isinstance(_loggers().get(edit.name), logging.Logger):
        return Outcome(ErrorCode.INVALID_CONFIG, f"Logger {edit.name} does not exist!")
    if edit.operation == ConfigOperation.DELETE:
        why = "Removing the log level of the root logger is not allowed"
        return Outcome(ErrorCode.INVALID_REQUEST, why) if edit.name == ROOT else None
    if edit.value not in LEVELS:
        why = f"Cannot set the log level of {edit.name} to {edit.value} as it is not a supported log level."
        return Outcome(ErrorCode.INVALID_CONFIG, f"{why} Valid log levels are {', '.join(LEVELS)}")
    return None


def _loggers() -> dict[str, "logging.Logger | logging.PlaceHolder"]:
    return logging.root.manager.loggerDict


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _level_of(name: str) -> str:
    number = _logger(name).getEffectiveLevel()
    by_number = sorted((value, key) for key, value in LEVELS.items())
    return next((key for value, key in by_number if value >= number), "FATAL")
