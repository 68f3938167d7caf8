"""The verdict: what came through the log beside what the data set says, to the row."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from examples.flights.dataset import CarrierMonth, CarrierTotal, Figure

RELATIVE_TOLERANCE = 1e-12
"""Sums of whole minutes are exact in both; only the one division may round differently."""


class Row(NamedTuple):
    """One line of a comparison."""

    key: tuple[Any, ...]
    expected: Figure | CarrierTotal | None
    found: Figure | CarrierTotal | None

    @property
    def equal(self) -> bool:
        """Both are there and say the same."""
        if self.expected is None or self.found is None:
            return False
        return all(_same(one, other) for one, other in zip(self.expected, self.found, strict=True))


class FoundTable(NamedTuple):
    """The Delta table that the totals topic was exported into, and how it compares with the topic."""

    rows: int
    commits: int
    missing: int
    extra: int
    totals: Mapping[str, CarrierTotal]


def _same(one: float, other: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=RELATIVE_TOLERANCE, abs_tol=0.0)


def figures_of_table(rows: Iterable[Mapping[str, Any]]) -> dict[CarrierMonth, Figure]:
    """The table that the query told; no mean where nobody departed is NaN here, as in the data set."""
    return {
        CarrierMonth(row["carrier"], row["month"]): Figure(
            row["flights"], math.nan if row["mean_delay_minutes"] is None else row["mean_delay_minutes"]
        )
        for row in rows
    }


def compare(expected: Mapping[Any, Any], found: Mapping[Any, Any]) -> list[Row]:
    """Every key of either side, in order."""
    keys = sorted({*expected, *found})
    return [Row(key if isinstance(key, tuple) else (key,), expected.get(key), found.get(key)) for key in keys]
