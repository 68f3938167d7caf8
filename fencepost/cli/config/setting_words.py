"""NAME=VALUE as it stands on the command line."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import click


class Setting(NamedTuple):
    """A setting's name and its value."""

    name: str
    value: str


class SettingType(click.ParamType):  # type: ignore[type-arg]
    """NAME=VALUE; the value may be empty, and may hold further equals signs."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Setting:
        """Split at the first equals sign."""
        if isinstance(value, Setting):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name.strip():
            self.fail(f"{value!r} is no setting; write NAME=VALUE, for example retention.ms=86400000", param, ctx)
        return Setting(name.strip(), text)


SETTING = SettingType()


def as_mapping(settings: Iterable[Setting]) -> dict[str, str]:
    """Settings by name. Raises UsageError where one is given twice."""
    found: dict[str, str] = {}
    for name, value in settings:
        if name in found:
            raise click.UsageError(f"{name} is given twice")
        found[name] = value
    return found
