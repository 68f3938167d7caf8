"""How the value of an option is read: from Python's types, and from the strings of Kafka's property files."""

from collections.abc import Callable
from dataclasses import field
from typing import Any

Convert = Callable[[Any], Any]


class Secret(str):
    """A string that never shows in a repr, and so in no log and no error that prints a configuration."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def option(default: Any, convert: Convert, *, secret: bool = False) -> Any:
    """A dataclass field with the function that reads its value; a `secret` one is never repeated in an error."""
    return field(default=default, metadata={"convert": convert, "secret": secret}, repr=not secret)


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
        number = int(value)
        if number != float(value) or not low <= number <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return number

    return convert


def choice(*allowed: str, why: str = "") -> Convert:
    """One of some words, in any case; the result has the case of `allowed`. `why` explains a refusal."""
    by_lower = {word.lower(): word for word in allowed}

    def convert(value: Any) -> str:
        found = by_lower.get(str(value).lower())
        if found is None:
            words = allowed[0] if len(allowed) == 1 else f"one of {', '.join(allowed)}"
            raise ValueError(f"must be {words}: {why}" if why else f"must be {words}")
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
    """ "host:port,[::1]:port", perhaps with Kafka's PROTOCOL:// in front; or a list of such."""
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
