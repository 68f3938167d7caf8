"""Values as people read them: aligned tables, ages, times, names that a client chose."""

import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from fencepost.protocol.topics import TopicPartition

CELL_MAX = 249
"""The longest name of a topic: a shortened name is useless."""


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns under their heads, as wide as needed; numbers are right-aligned. A column without a head may be empty."""
    rows = list(rows)
    texts = [[cell(value) if value or name else "" for name, value in zip(head, row, strict=True)] for row in rows]
    numbers = [all(isinstance(row[i], int) for row in rows) for i in range(len(head))]
    widths = [max([len(name), *(len(row[i]) for row in texts)]) for i, name in enumerate(head)]
    lines = []
    for row in [list(head), *texts]:
        cells = [
            text.rjust(width) if numbers[i] else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def cell(value: object) -> str:
    """A value on one line: names that clients choose may contain any character."""
    text = "-" if value is None or value == "" else str(value)
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    return text if len(text) <= CELL_MAX else text[: CELL_MAX - 3] + "..."


def age(seconds: float) -> str:
    """`40 ms`, `1.4 s`, `12 s`, `3 min 12 s`, `2 h 5 min`, `3 d 4 h`."""
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for unit, name, below, below_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // below
            return f"{whole // unit} {name} {rest} {below_name}" if rest else f"{whole // unit} {name}"
    return f"{whole} s"


def size(count: int) -> str:
    """`17 B`, `4.0 KiB`, `1.5 GiB`; a dash if it is unknown."""
    if count < 0:
        return "-"
    amount, unit = float(count), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount /= 1024
        unit += 1
    return f"{count} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def moment(time_ms: int) -> str:
    """`2026-11-21 03:44:12.123Z`; a dash for none; the number of ms for a time beyond the year 9999."""
    if time_ms < 0:
        return "-"
    try:
        at = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # clients choose timestamps freely, and damaged files have any
        return f"{time_ms} ms"
    return at.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def shown_id(value: bytes) -> str:
    """A 16-byte id as Kafka's tools write it: 22 characters of base64."""
    return urlsafe_b64encode(value).decode().rstrip("=")


def counted(number: int, thing: str) -> str:
    """`1 offset`, `8339 offsets`, `2 batches`."""
    ending = "" if number == 1 else "es" if thing.endswith("ch") else "s"
    return f"{number} {thing}{ending}"


def places(partitions: Iterable[TopicPartition]) -> str:
    """`orders:0, orders:3`, as the commands take them."""
    return ", ".join(f"{cell(topic)}:{number}" for topic, number in sorted(partitions))


def json_value(value: Any) -> Any:
    """Named tuples as objects, partitions as `topic:partition`, codes and verdicts by name, times in ISO 8601."""
    if isinstance(value, TopicPartition):
        return f"{value.topic}:{value.partition}"
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, str) else value.name
    if isinstance(value, datetime):
        return value.isoformat()
    if hasattr(value, "_asdict"):
        return {name: json_value(item) for name, item in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    return value
