"""The output of `fencepost config`: settings, their sources, their meanings, and changes."""

import difflib
import re
from textwrap import fill
from typing import TYPE_CHECKING, Any

from fencepost.cli.plain_text import cell, table
from fencepost.cli.setting_changes import is_without_effect, shown_value
from fencepost.protocol.admin_enums import ConfigSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fencepost.client.admin import ConfigEntry

WIDTH = 100
_MARKUP = re.compile(r"<[^<>]+>")
"""Kafka explains its settings in HTML."""
_FROM = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_GROUP_CONFIG: "group",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker, at run time",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, at run time",
    ConfigSource.STATIC_BROKER_CONFIG: "broker's start",
    ConfigSource.DEFAULT_CONFIG: "default",
    ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG: "broker's logger",
    ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG: "client metrics",
}


def source_of(source: ConfigSource) -> str:
    return _FROM.get(source, source.name.lower().replace("_", " "))


def _notes(entry: "ConfigEntry") -> str:
    notes = ["no effect here"] if is_without_effect(entry) else []
    notes += ["read-only"] if entry.read_only else []
    return ", ".join(notes)


def entries_text(entries: "Iterable[ConfigEntry]") -> str:
    rows = [(e.name, shown_value(e.value, e.sensitive), source_of(e.source), _notes(e)) for e in entries]
    return table(("SETTING", "VALUE", "FROM", ""), rows)


def explained_text(entries: "Iterable[ConfigEntry]") -> str:
    """Settings with their meaning and all their values, the one that holds first."""
    blocks = []
    for entry in entries:
        notes = f"  ({_notes(entry)})" if _notes(entry) else ""
        lines = [f"{entry.name} = {shown_value(entry.value, entry.sensitive)}{notes}"]
        if entry.documentation:
            meaning = _MARKUP.sub("", entry.documentation)
            lines.append(fill(meaning, WIDTH, initial_indent="  ", subsequent_indent="  "))
        if not entry.synonyms:
            lines.append(f"  from {source_of(entry.source)}")
        lines += [
            f"  {'from' if number == 0 else 'else'} {source_of(one.source)}: "
            f"{one.name}={shown_value(one.value, entry.sensitive)}"
            for number, one in enumerate(entry.synonyms)
        ]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def list_text(found: "Iterable[tuple[tuple[str, str], list[ConfigEntry]]]") -> str:
    """The settings of several topics, brokers and groups in one table."""
    rows = [
        (kind, name, e.name, shown_value(e.value, e.sensitive), source_of(e.source), _notes(e))
        for (kind, name), entries in found
        for e in entries
    ]
    return table(("KIND", "NAME", "SETTING", "VALUE", "FROM", ""), rows)


def explained_list(found: "Iterable[tuple[tuple[str, str], list[ConfigEntry]]]") -> str:
    """The same, each setting with its meaning."""
    return "\n\n".join(f"{kind} {cell(name)}:\n\n{explained_text(entries)}" for (kind, name), entries in found)


def entry_json(entry: "ConfigEntry") -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "read_only": entry.read_only,
        "sensitive": entry.sensitive,
        "without_effect": is_without_effect(entry),
        "documentation": entry.documentation,
        "synonyms": [{"name": one.name, "value": one.value, "source": one.source.name} for one in entry.synonyms],
    }


def nearest(name: str, there: "Iterable[str]") -> str:
    """The nearest known setting, as part of a message."""
    close = difflib.get_close_matches(name, list(there), n=1, cutoff=0.4)
    return f"; the nearest is {close[0]!r}" if close else ""
