"""Checks options, and makes a configuration of them.

A name that does not exist raises ConfigError, which names the nearest one.
"""

import difflib
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, TypeVar

from fencepost.client.config import ClientConfig, ConsumerConfig, QueueConfig, TransactionalProducerConfig
from fencepost.client.config_names import (
    DEFAULT_PARTITIONER,
    IGNORED,
    KEYWORD_SYNONYMS,
    REPLACED_BY,
    RESET_WORDS,
    SYNONYMS,
    keyword_of,
)
from fencepost.client.errors import ConfigError
from fencepost.client.network.security import DOTTED, translated
from fencepost.client.options import Convert
from fencepost.protocol.duration_text import in_milliseconds
from fencepost.protocol.reset_policy import ResetPolicy

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
NEEDED = "must be given"
"""In the place of a default, for an option that has none."""
_NEAR = 0.8
"""How alike two names must be, as difflib counts, for one to be a misspelling of the other."""

ROLES: dict[type, str] = {
    ClientConfig: "fencepost.Client",
    TransactionalProducerConfig: "producers",
    ConsumerConfig: "consumers",
    QueueConfig: "queues",
}
"""The objects with options, and their names in errors."""


def names_of(kind: type) -> list[str]:
    return [entry.name for entry in fields(kind)]


def defaults_of(kind: type) -> dict[str, str]:
    """The defaults of one role as people read them, by keyword."""
    return {keyword_of(entry.name): _shown_default(entry.name, entry.default) for entry in fields(kind)}


def meanings_of(kind: type) -> dict[str, str]:
    """What each option of one role means, by keyword."""
    return {keyword_of(entry.name): entry.metadata["doc"] for entry in fields(kind)}


def _shown_default(name: str, default: Any) -> str:
    if default is MISSING:
        return NEEDED
    if name.endswith("_ms"):
        return f"{default / 1000:g} s"
    if type(default) is int and default and not default % (1 << 10):
        return f"{default >> 20} MiB" if not default % (1 << 20) else f"{default >> 10} KiB"
    if isinstance(default, Enum):
        default = default.name.lower()
    return repr(str(default) if isinstance(default, ResetPolicy) else default)


def parse(kind: type[T], given: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None) -> T:
    """Keyword arguments -> one checked, frozen configuration.

    `defaults` (Kafka's names, from `Client.from_config`) give way to `given`. Raises ConfigError for an unknown
    keyword and for a value that is not accepted.
    """
    entries = {keyword_of(entry.name): entry for entry in fields(kind)}  # type: ignore[arg-type]
    values = {name: value for name, value in (defaults or {}).items() if keyword_of(name) in entries}
    found = {entry.name: _converted(entry, values) for entry in entries.values() if entry.name in values}
    for keyword, value in given.items():
        if keyword not in entries:
            raise ConfigError(f"unknown option {keyword!r}; {_advice(keyword, kind)}")
        entry = entries[keyword]
        convert = entry.metadata.get("from_keyword", entry.metadata["convert"])
        found[entry.name] = _value(entry, keyword, value, convert)
    return _filled(kind, found)


def parse_kafka(kind: type[T], given: Mapping[str, Any]) -> T:
    """Options by Kafka's names in snake_case, with milliseconds -> one checked, frozen configuration.

    Raises ConfigError as `parse` does.
    """
    wanted = names_of(kind)
    for name in given:
        if name not in wanted:
            raise ConfigError(f"unknown option {name!r}; {_dotted_advice(name, wanted)}")
    entries = fields(kind)  # type: ignore[arg-type]
    return _filled(kind, {entry.name: _converted(entry, given) for entry in entries if entry.name in given})


def _filled(kind: type[T], found: dict[str, Any]) -> T:
    for entry in fields(kind):  # type: ignore[arg-type]
        if entry.default is MISSING and entry.name not in found:
            raise ConfigError(f"option {entry.name!r} must be given")
    return kind(**found)


def from_dotted(config: Mapping[str, Any]) -> dict[str, Any]:
    """Kafka's own dotted names (`bootstrap.servers`) -> long snake_case names, their values as they were written.

    Options of other clients that this one does not have are ignored, and logged in one warning. Raises ConfigError for
    other names, and for values that no client, producer or consumer accepts.
    """
    known = {name for role in ROLES for name in names_of(role)}
    shown = {written.replace(".", "_"): written for written in config}
    long: dict[str, Any] = {}
    left_out: list[str] = []
    for written, value in translated(config).items():
        name = SYNONYMS.get(written, written)
        if name in known:
            long[name] = _carried_over(name, value)
        elif written in IGNORED:
            left_out.append(shown[written])
        else:
            raise ConfigError(f"unknown option {shown[written]!r}; {_dotted_advice(name, known)}")
    if long.get("partitioner") == DEFAULT_PARTITIONER:
        del long["partitioner"]
    spelled = {SYNONYMS.get(name, name): one for one in config for name in translated({one: config[one]})}
    for role in ROLES:
        for entry in fields(role):
            if entry.name in long:
                _converted(entry, long, spelled[entry.name])
    if left_out:
        _LOG.warning("ignored options that this client does not have: %s", ", ".join(left_out))
    return long


def _carried_over(name: str, value: Any) -> Any:
    if name == "auto_offset_reset":
        return RESET_WORDS.get(str(value).lower(), value)
    return value


def _converted(entry: Any, values: Mapping[str, Any], written: str = "") -> Any:
    return _value(entry, written or entry.name, values[entry.name], entry.metadata["convert"])


def with_kafkas_names(text: str) -> str:
    """An error's text with Kafka's own names of options, for a program that reads them from a file."""
    return _OPTION.sub(lambda found: _KAFKAS_NAMES[found[0]], text)


def _value(entry: Any, written: str, value: Any, convert: Convert) -> Any:
    if value is None and entry.default is None:
        return None
    try:
        return convert(value)
    except (ValueError, TypeError) as wrong:
        shown = "the value" if entry.metadata.get("secret") else repr(value)
        instead = in_milliseconds(entry.name, value) if convert is entry.metadata["convert"] else ""
        raise ConfigError(f"option {written!r}: {shown} {wrong}{instead}") from None


def _advice(written: str, kind: type) -> str:
    """The right keyword for one that does not exist, or where the options are documented."""
    wanted = [keyword_of(name) for name in names_of(kind)]
    if written in REPLACED_BY:
        return REPLACED_BY[written]
    kafka = KEYWORD_SYNONYMS.get(written, written)
    keyword = keyword_of(kafka)
    unit = ", in seconds or as a timedelta" if kafka.endswith("_ms") else ""
    if keyword in wanted:
        return f"its name here is {keyword!r}{unit}"
    others = [who for role, who in ROLES.items() if keyword in map(keyword_of, names_of(role))]
    if others:
        return f"{keyword!r} is an option of {' and '.join(others)}"
    near = difflib.get_close_matches(written, wanted, 1, _NEAR)
    if near:
        return f"the nearest is {near[0]!r}"
    return f"see docs/client.md#options or help(fencepost.{kind.__name__.removesuffix('Config')}Options)"


def _dotted_advice(name: str, known: Collection[str]) -> str:
    if name in REPLACED_BY:
        return REPLACED_BY[name]
    near = difflib.get_close_matches(name, sorted(known), 1, _NEAR)
    return f"the nearest is {near[0].replace('_', '.')!r}" if near else "see docs/client.md#options"


_SSL = {short: dotted for dotted, short in reversed(DOTTED.items()) if short.startswith("ssl_")}
_KAFKAS_NAMES = {
    spelling: _SSL.get(name, name.replace("_", "."))
    for role in ROLES
    for name in names_of(role)
    for spelling in (name, keyword_of(name))
    if "_" in spelling
}
_OPTION = re.compile(rf"\b({'|'.join(sorted(_KAFKAS_NAMES, key=len, reverse=True))})\b")
