"""Durations as people write them, for the errors of settings that take milliseconds."""

import re

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d{1,9})\s?(ms|s|m|h|d|w)")


def in_milliseconds(name: str, text: object) -> str:
    """What to write instead of `1h` for a setting in milliseconds, as the end of an error; empty for other texts."""
    found = _DURATION.fullmatch(str(text))
    if found is None or not name.endswith((".ms", "_ms")):
        return ""
    return f"; it is in milliseconds: write {int(found[1]) * _UNITS_MS[found[2]]} for {text}"
