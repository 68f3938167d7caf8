"""The sources of settings: TOML, server.properties, the environment and the command line, each with its origin."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.broker.config.fields import ConfigError

ENVIRONMENT_PREFIX = "FENCEPOST_"
NOT_SETTINGS = frozenset({"FENCEPOST_BOOTSTRAP", "FENCEPOST_COMMAND_CONFIG", "FENCEPOST_PROFILE", "FENCEPOST_PURE"})
"""Variables of the same prefix that the command line reads itself."""


class Given(NamedTuple):
    """A given value, not validated yet."""

    name: str
    raw: object
    origin: str


def from_file(path: Path) -> list[Given]:
    """Read a TOML or a server.properties file. The ending decides the format, or the content if the ending is unknown.

    Raises ConfigError for a file that cannot be read or parsed.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error}") from error
    import tomllib  # here: a broker without a file of settings need not pay for it

    ending = path.suffix.lower()
    if ending == ".toml" or (ending not in (".properties", ".conf") and _is_toml(text)):
        try:
            return from_table(tomllib.loads(text), str(path))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return list(from_properties(text, str(path)))


def _is_toml(text: str) -> bool:
    import tomllib

    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def from_table(table: Mapping[str, Any], origin: str) -> list[Given]:
    """Flatten TOML tables: `num.partitions = 4` and `[num]` with `partitions = 4` are the same setting."""
    found: list[Given] = []
    pending: list[tuple[str, Mapping[str, Any]]] = [("", table)]
    while pending:
        prefix, current = pending.pop()
        for key, value in current.items():
            if isinstance(value, dict):
                pending.append((f"{prefix}{key}.", value))
            else:
                found.append(Given(prefix + key, value, origin))
    return found


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def from_properties(text: str, origin: str) -> Iterator[Given]:
    """Parse Java's properties: comments with # or !; =, : or a blank between key and value; \\ continues a line."""
    for number, line in _logical_lines(text):
        match = re.match(r"((?:\\.|[^\s=:\\])+)\s*[=:]?\s*(.*)", line, re.DOTALL)
        if match is None:
            raise ConfigError(f"{origin}, line {number}: {line!r} is not of the form name=value")
        yield Given(_unescape(match[1]), _unescape(match[2]).rstrip(), f"{origin}, line {number}")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    joined, start = "", 0
    for number, physical in enumerate(text.splitlines(), 1):
        line = physical.lstrip()
        if not joined:
            start = number
            if not line or line[0] in "#!":
                continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            joined += line[:-1]
            continue
        yield start, joined + line
        joined = ""
    if joined:
        yield start, joined


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", one, text)


def from_environment(environ: Mapping[str, str]) -> list[Given]:
    """`FENCEPOST_NUM_PARTITIONS=4` is `num.partitions=4`."""
    return [
        Given(key[len(ENVIRONMENT_PREFIX) :].lower().replace("_", "."), value, f"environment variable {key}")
        for key, value in sorted(environ.items())
        if key.startswith(ENVIRONMENT_PREFIX) and key not in NOT_SETTINGS
    ]


def from_assignments(assignments: Iterable[str], origin: str = "--set") -> list[Given]:
    """`num.partitions=4`, as in `--set`; raises ConfigError if the equals sign is missing."""
    found: list[Given] = []
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{origin} {assignment!r} is not of the form name=value")
        found.append(Given(name.strip(), value, origin))
    return found
