"""Converters for the values of options, for source and sink. Each raises ValueError that says what is allowed."""

import difflib
from collections.abc import Mapping

ONLY_FOR_JAVA = (
    "kafka.send.buffer.bytes",
    "kafka.metric.reporters",
    "kafka.metrics.num.samples",
    "kafka.metrics.recording.level",
    "kafka.metrics.sample.window.ms",
    "kafka.auto.include.jmx.reporter",
    "kafka.enable.metrics.push",
    "kafka.security.providers",
)
"""Options for the metrics and sockets of Java's clients. They have no effect here."""
_OF_TABLES = "provider"
"""Added by CREATE TABLE ... USING fencepost."""
_NO_TABLES = (
    "Spark does not pass the options of a table to a Python data source when it reads or writes the table. Instead of"
    " CREATE TABLE use CREATE TEMPORARY VIEW name USING fencepost OPTIONS (...); to write, INSERT INTO table WITH (...)"
)


class OptionError(ValueError):
    """An option is unknown, contradicts another one, or has an invalid value."""


def canonical(
    options: Mapping[str, str], spelling: Mapping[str, str], refused: Mapping[str, str], suffix: str = ""
) -> dict[str, str]:
    """Options under their canonical names; `spelling` maps lower-case names to these.

    Raises OptionError for an unknown name, with the nearest known one; for a name in `refused`, with the reason; and
    for the options of a table.
    """
    given: dict[str, str] = {}
    if not options:
        raise OptionError(f"no option is set. For a table of SQL: {_NO_TABLES}")
    if _OF_TABLES in {name.lower() for name in options}:
        raise OptionError(_NO_TABLES)
    for name, value in options.items():
        known = spelling.get(name.lower())
        if known is None:
            near = difflib.get_close_matches(name.lower(), spelling, n=1, cutoff=0.5)
            hint = f"; did you mean {spelling[near[0]]}?" if near else ""
            raise OptionError(f"option {name} is not known{suffix}{hint}")
        if known in refused:
            raise OptionError(f"option {known} cannot be set: {refused[known]}")
        given[known] = value
    return given


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ValueError("must be a whole number above 0")
    return int(text)


def not_negative(text: str) -> int:
    """A whole number from 0 on."""
    if not text.isascii() or not text.isdigit():
        raise ValueError("must be a whole number, 0 or above")
    return int(text)


def boolean(text: str) -> bool:
    """true or false, in upper or lower case, as in Spark."""
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"
