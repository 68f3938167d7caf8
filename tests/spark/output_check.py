"""Is an output the committed input, row by row? Pure: what it finds is planted in test_output_check.py.

A value is `TRANSACTION NUMBER OF`: the row NUMBER of a transaction of OF rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

_NAMED_MAX = 5


def value_of(transaction: int, number: int, of: int) -> bytes:
    """The value of a row."""
    return b"%d %d %d" % (transaction, number, of)


def faults(expected: Iterable[Hashable], found: Iterable[Hashable]) -> list[str]:
    """What differs: rows that are missing, that are there too often, and that nobody wrote (or with other content)."""
    wanted, there = Counter(expected), Counter(found)
    missing = wanted - there
    foreign = [row for row in there if row not in wanted]
    doubled = [row for row, count in there.items() if 0 < wanted[row] < count]
    return [
        *_told(f"of {wanted.total()} rows are missing", list(missing.elements())),
        *_told("rows are there twice or more", doubled),
        *_told("rows are not of the input", foreign),
    ]


def torn(values: Iterable[bytes]) -> list[str]:
    """Transactions of which some rows are there, and others are not."""
    seen: dict[int, set[int]] = {}
    size: dict[int, int] = {}
    for value in values:
        transaction, number, size_then = map(int, value.split())
        seen.setdefault(transaction, set()).add(number)
        size[transaction] = size_then
    return _told("transactions are there in part", [one for one in seen if len(seen[one]) != size[one]])


def transactions(values: Iterable[bytes]) -> set[int]:
    """The numbers of the transactions that wrote these values."""
    return {int(value.split()[0]) for value in values}


def _told(what: str, rows: list[Hashable] | list[int]) -> list[str]:
    return [f"{len(rows)} {what}: {rows[:_NAMED_MAX]}"] if rows else []
