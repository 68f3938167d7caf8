"""Compares the records expected in a topic exactly once with those that read_committed consumers get."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from fencepost.testing.log_view import LoggedRecord

By = Literal["value", "key", "item"] | Callable[[LoggedRecord], Any]
SHOWN_MAX = 10

_FIELDS: dict[str, Callable[[LoggedRecord], Any]] = {
    "value": lambda record: record.value,
    "key": lambda record: record.key,
    "item": lambda record: (record.key, record.value),
}


def differences(
    expected: Iterable[Any], visible: Sequence[LoggedRecord], everything: Sequence[LoggedRecord], by: By
) -> list[str]:
    """A line for each expected thing that is missing or occurs too often, and for each unexpected one.

    `visible` are the records that read_committed consumers get. `everything` are all written records: they show what
    happened to a missing one.
    """
    identity = _FIELDS[by] if isinstance(by, str) else by
    wanted = Counter(_hashable(one) for one in expected)
    got: dict[Any, list[LoggedRecord]] = defaultdict(list)
    for record in visible:
        got[_hashable(identity(record))].append(record)
    written: dict[Any, list[LoggedRecord]] = defaultdict(list)
    for record in everything:
        written[_hashable(identity(record))].append(record)
    lines: dict[str, list[str]] = {"missing": [], "too often": [], "unexpected": []}
    for thing, count in wanted.items():
        if len(got[thing]) < count:
            lines["missing"].append(f"{thing!r}: {_whereabouts(written[thing])}")
        elif len(got[thing]) > count:
            lines["too often"].append(f"{thing!r}: {_places(got[thing])}, {count} expected")
    lines["unexpected"] = [f"{thing!r}: {_places(got[thing])}" for thing in got if got[thing] and not wanted[thing]]
    return [line for kind, found in lines.items() for line in _shortened(kind, found)]


def _shortened(kind: str, found: list[str]) -> list[str]:
    shown = [f"{kind} {line}" for line in found[:SHOWN_MAX]]
    return [*shown, f"{kind}: {len(found) - SHOWN_MAX} more"] if len(found) > SHOWN_MAX else shown


def _whereabouts(records: Sequence[LoggedRecord]) -> str:
    if not records:
        return "was never written"
    return ", ".join(f"written at {_place(record)}, {record.verdict}" for record in records)


def _places(records: Sequence[LoggedRecord]) -> str:
    return ", ".join(map(_place, records))


def _place(record: LoggedRecord) -> str:
    return f"{record.topic}-{record.partition}@{record.offset}"


def _hashable(thing: Any) -> Any:
    """`thing` in comparable form: text as its bytes, lists as tuples."""
    if isinstance(thing, str):
        return thing.encode()
    return tuple(map(_hashable, thing)) if isinstance(thing, list | tuple) else thing
