"""Types of parameters that several commands take: settings, partitions, points in time."""

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import click


class Setting(NamedTuple):
    name: str
    value: str


class SettingType(click.ParamType):  # type: ignore[type-arg]
    """NAME=VALUE; the value may be empty, and may hold further equals signs."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Setting:
        if isinstance(value, Setting):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name.strip():
            self.fail(f"{value!r} is not a setting; write NAME=VALUE, for example retention.ms=86400000", param, ctx)
        return Setting(name.strip(), text)


SETTING = SettingType()


def as_mapping(settings: Iterable[Setting]) -> dict[str, str]:
    """Settings by name. Raises UsageError for a setting that is given twice."""
    found: dict[str, str] = {}
    for name, value in settings:
        if name in found:
            raise click.UsageError(f"{name} is given twice")
        found[name] = value
    return found


class Place(NamedTuple):
    """A topic, or one partition of it."""

    topic: str
    partition: int | None


class PlaceType(click.ParamType):  # type: ignore[type-arg]
    """TOPIC or TOPIC:PARTITION."""

    name = "topic[:partition]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """Split at the last colon, which no topic's name can hold."""
        topic, colon, number = str(value).rpartition(":")
        if not colon:
            return Place(number, None)
        if not topic or not (number.isascii() and number.isdigit()):
            self.fail(
                f"{value!r} is not a topic or partition; write TOPIC or TOPIC:PARTITION, for example orders:3",
                param,
                ctx,
            )
        return Place(topic, int(number))


PLACE = PlaceType()


DURATION = re.compile(
    r"(?:P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
    r"|(?:(?P<sw>\d+)w)?(?:(?P<sd>\d+)d)?(?:(?P<sh>\d+)h)?(?:(?P<sm>\d+)m)?(?:(?P<ss>\d+(?:\.\d+)?)s)?)"
)


class MomentType(click.ParamType):  # type: ignore[type-arg]
    """A date and time, in UTC without a time zone, as ms since 1970."""

    name = "datetime"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read ISO 8601."""
        try:
            at = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(
                f"{value!r} is not a date; write it as 2026-11-21T18:00:00, or with a zone at the end", param, ctx
            )
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        return round(at.timestamp() * 1000)


class DurationType(click.ParamType):  # type: ignore[type-arg]
    """A duration, as ms."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read `2h30m`, `7d`, `2w`, or ISO 8601's P1DT2H, as Kafka's tools take it."""
        seconds = _seconds(str(value))
        if seconds is None:
            self.fail(f"{value!r} is not a duration; write 90m, 2h30m, 7d, 2w, or PT2H30M", param, ctx)
        return round(seconds * 1000)


class SecondsType(click.ParamType):  # type: ignore[type-arg]
    """A number of seconds, or a duration; in seconds."""

    name = "seconds"

    def __init__(self, at_least: float = 0.0) -> None:
        self._at_least = at_least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read `90`, `0.5`, or a duration as `2h30m`."""
        try:
            seconds: float | None = float(value)
        except ValueError:
            seconds = _seconds(str(value))
        if seconds is None or not math.isfinite(seconds):
            self.fail(f"{value!r} is not a duration; write seconds as 90, or 90s, 2h30m, 7d, 2w", param, ctx)
        if seconds < self._at_least:
            self.fail(f"{value!r} is too short; give {self._at_least:g} seconds or more", param, ctx)
        return seconds


def _seconds(text: str) -> float | None:
    """A duration in seconds; None if the text is not a duration."""
    found = DURATION.fullmatch(text)
    parts = {name[-1]: float(number) for name, number in (found.groupdict() if found else {}).items() if number}
    if not parts:
        return None
    weeks, days, hours, minutes, seconds = (parts.get(unit, 0.0) for unit in "wdhms")
    return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()
