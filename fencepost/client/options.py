"""Converts option values from Python's types and from the strings of Kafka's property files."""

import math
from collections.abc import Callable
from dataclasses import field
from datetime import timedelta
from typing import Any

from fencepost.protocol.topics import IsolationLevel

Convert = Callable[[Any], Any]


class Secret(str):
    """A string that never shows in a repr, and so in no log and no error that prints a configuration."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def option(default: Any, convert: Convert, doc: str, *, secret: bool = False) -> Any:
    """A dataclass field with the function that reads its value, and what it means in one line.

    A `secret` value is never repeated in an error.
    """
    return field(default=default, metadata={"convert": convert, "secret": secret, "doc": doc}, repr=not secret)


def duration(default_ms: int, low_ms: int, doc: str) -> Any:
    """A dataclass field in milliseconds, as in Kafka's files; the keyword takes seconds or a timedelta."""
    read_ms = integer(low_ms)
    lowest, highest = low_ms / 1000, (2**31 - 1) / 1000

    def from_keyword(value: Any) -> int:
        try:
            found: int = read_ms(milliseconds(value))
        except ValueError:
            raise ValueError(f"must be seconds, or a timedelta, from {lowest:g} to {highest:.0f} s") from None
        return found

    return field(default=default_ms, metadata={"convert": read_ms, "from_keyword": from_keyword, "doc": doc})


def milliseconds(value: Any) -> int:
    """A duration in seconds, or a timedelta, as whole milliseconds. Raises ValueError for anything else."""
    found = seconds(value)
    if not math.isfinite(found):
        raise ValueError("must be finite")
    return round(found * 1000)


def seconds(value: Any) -> float:
    """A duration in seconds, or a timedelta, as seconds. Raises ValueError for anything else."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"{value!r} is not a duration: give seconds or a timedelta")
    return value


def isolation_level(value: Any) -> IsolationLevel:
    """An IsolationLevel, or its name. Raises ValueError."""
    if isinstance(value, IsolationLevel):
        return value
    try:
        return IsolationLevel[str(value).upper()]
    except KeyError:
        raise ValueError("must be read_committed or read_uncommitted") from None


def boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError("must be true or false")


def integer(low: int, high: int = 2**31 - 1) -> Convert:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str | float):
            raise ValueError("must be a whole number")
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"must be a whole number from {low} to {high}") from None
        if number != float(value) or not low <= number <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return number

    return convert


def choice(*allowed: str, reason: str = "") -> Convert:
    """One of some words, in any case; the result has the case of `allowed`. `reason` explains an error."""
    by_lower = {word.lower(): word for word in allowed}

    def convert(value: Any) -> str:
        found = by_lower.get(str(value).lower())
        if found is None:
            words = allowed[0] if len(allowed) == 1 else f"one of {', '.join(allowed)}"
            raise ValueError(f"must be {words}: {reason}" if reason else f"must be {words}")
        return found

    return convert


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a string that is not empty")
    return value


def secret(value: Any) -> Secret:
    return Secret(text(value))


def function(value: Any) -> Any:
    if not callable(value):
        raise ValueError("must be a function")
    return value


def addresses(value: Any) -> tuple[tuple[str, int], ...]:
    """ "host:port,[::1]:port", each with an optional PROTOCOL:// as in Kafka; or a list of these."""
    parts = value.split(",") if isinstance(value, str) else list(value)
    found = []
    for part in parts:
        host, _, port = str(part).strip().rpartition("://")[2].rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"{part!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("names no server")
    return tuple(found)
