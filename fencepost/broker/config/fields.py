"""Declares one setting, parses and formats its value; used by the broker's and the topics' settings."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Required, TypedDict, TypeVar, Unpack

from fencepost.protocol.duration_text import in_milliseconds

Value = bool | int | float | str | tuple[str, ...] | None
"""A setting's value; LIST settings are tuples, None means "not set" if a setting allows it."""

LONG_MAX = 2**63 - 1
_RANGES = {3: (-(2**31), 2**31 - 1), 4: (-(2**15), 2**15 - 1), 5: (-(2**63), LONG_MAX)}


class Kind(IntEnum):
    """The type of a setting, under the numbers of DescribeConfigs v3+ (`ConfigType`)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN, STRING, INT, SHORT, LONG = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.SHORT, Kind.LONG
DOUBLE, LIST, CLASS, PASSWORD = Kind.DOUBLE, Kind.LIST, Kind.CLASS, Kind.PASSWORD


class Update(Enum):
    """When a setting may change: only at start, or at run time through (Incremental)AlterConfigs."""

    READ_ONLY = "read-only"
    CLUSTER_WIDE = "cluster-wide"
    PER_BROKER = "per-broker"
    """For one broker, but not for all of them."""


class ConfigError(Exception):
    """An invalid setting; the text names the setting, its origin, its value and the valid values."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name, type, default and bounds, its documentation, and whether it is listed and changeable.

    `low` and `high` bound numbers (both inclusive); `choices` bounds strings and the members of lists; `check` returns
    what is wrong with a value that passed those, or None. `ours` marks names that Kafka does not have.
    """

    name: str
    kind: Kind
    default: Value
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Any], str | None] | None = None
    ours: bool = False
    served: bool = True
    update: Update = Update.READ_ONLY

    @property
    def nullable(self) -> bool:
        return self.default is None

    @property
    def secret(self) -> bool:
        """Whether the value must not be shown: not in logs, errors and DescribeConfigs."""
        return self.kind is Kind.PASSWORD

    @property
    def expected(self) -> str:
        """What a value must look like, for error texts: `int >= 1`, `one of CreateTime, LogAppendTime`, ..."""
        if self.choices:
            many = "a comma-separated list of" if self.kind is Kind.LIST else "one of"
            return f"{many} {', '.join(self.choices)}"
        name = {Kind.BOOLEAN: "boolean (true or false)"}.get(self.kind, self.kind.name.lower())
        if self.low is not None and self.high is not None:
            return f"{name} from {self.low} to {self.high}"
        if self.low is not None:
            return f"{name} >= {self.low}"
        return name

    def parse(self, raw: object) -> Value:
        """Convert text (or a value from TOML) to this setting's type; raises ValueError that explains the fault."""
        if raw is None:
            if self.nullable:
                return None
            raise ValueError(f"needs a value, {self.expected}")
        value = _CONVERT[self.kind](self, raw)
        self._check_bounds(value)
        return value

    def _check_bounds(self, value: Value) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = _RANGES.get(self.kind, (None, None))
            lowest = self.low if self.low is not None else low
            highest = self.high if self.high is not None else high
            if (lowest is not None and value < lowest) or (highest is not None and value > highest):
                raise ValueError(f"{format_value(value)} is out of range, expected {self.expected}")
        members: Iterable[Any] = value if isinstance(value, tuple) else (value,)
        for member in members if self.choices else ():
            if member not in self.choices:
                raise ValueError(f"{member!r} is not allowed, expected {self.expected}")
        problem = self.check(value) if self.check is not None else None
        if problem is not None:
            raise ValueError(problem)


def _boolean(setting: Setting, raw: object) -> Value:
    if isinstance(raw, bool):
        return raw
    text = raw.strip().lower() if isinstance(raw, str) else ""
    if text not in ("true", "false"):
        raise ValueError(f"{raw!r} is not a {setting.expected}")
    return text == "true"


def _whole_number(setting: Setting, raw: object) -> Value:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    text = raw.strip() if isinstance(raw, str) else ""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        instead = in_milliseconds(setting.name, text)
        raise ValueError(f"{raw!r} is not a whole number, expected {setting.expected}{instead}")
    return int(text)


def _double(setting: Setting, raw: object) -> Value:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise ValueError(f"{raw!r} is not a number, expected {setting.expected}")
    try:
        value = float(raw)
    except ValueError:
        raise ValueError(f"{raw!r} is not a number, expected {setting.expected}") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"{raw!r} is not a finite number, expected {setting.expected}")
    return value


def _string(setting: Setting, raw: object) -> Value:
    if not isinstance(raw, str):
        if setting.secret:
            raise ValueError("the value is not a string")
        raise ValueError(f"{raw!r} is not a string, expected {setting.expected}")
    return raw.strip()


def _list(setting: Setting, raw: object) -> Value:
    if isinstance(raw, str):
        return tuple(part.strip() for part in raw.split(",")) if raw.strip() else ()
    if isinstance(raw, list | tuple) and all(isinstance(part, str) for part in raw):
        return tuple(part.strip() for part in raw)
    raise ValueError(f"{raw!r} is not a list of strings, expected {setting.expected}")


_CONVERT: dict[Kind, Callable[[Setting, object], Value]] = {
    Kind.BOOLEAN: _boolean,
    Kind.STRING: _string,
    Kind.CLASS: _string,
    Kind.PASSWORD: _string,
    Kind.INT: _whole_number,
    Kind.SHORT: _whole_number,
    Kind.LONG: _whole_number,
    Kind.DOUBLE: _double,
    Kind.LIST: _list,
}


def format_value(value: Value) -> str | None:
    """The text of a value as Kafka's tools show it: `true`, `compact,delete`, `0.5`, `1.5E308`; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).upper().replace("E+", "E") if isinstance(value, float) else str(value)


class Facts(TypedDict, total=False):
    """What a row of a table says of a setting besides its type and default: the fields of `Setting`."""

    low: float
    high: float
    choices: tuple[str, ...]
    check: Callable[[Any], str | None]
    ours: bool
    served: bool
    doc: Required[str]


V = TypeVar("V", bound=Value)


def setting(kind: Kind, default: V, *, dynamic: bool = False, **facts: Unpack[Facts]) -> V:
    """A dataclass field that is a setting; its name is the attribute's with dots for underscores."""
    update = Update.CLUSTER_WIDE if dynamic else Update.READ_ONLY
    declared = {"kind": kind, "default": default, "update": update, **facts}
    return dataclasses.field(default=default, repr=kind is not PASSWORD, metadata={"setting": declared})


def settings_of(table: type) -> dict[str, Setting]:
    """The settings that the fields of a dataclass declare, by name."""
    names = ((one.name.replace("_", "."), one.metadata) for one in dataclasses.fields(table))
    return {name: Setting(name, **metadata["setting"]) for name, metadata in names if "setting" in metadata}


def nearest(name: str, known: Mapping[str, object] | Iterable[str]) -> str | None:
    """The known name most similar to `name`, or None if no name is similar."""
    from difflib import get_close_matches  # here: only a misspelt name needs it

    matches = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None
