"""Spark's filters evaluated as in SQL, and random filters: what the rows of a query must be, whatever its plan."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

Row = dict[str, Any]
BASE_MS = 1_700_000_000_000
COMPARED = {
    EqualTo: lambda a, b: a == b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    StringStartsWith: lambda a, b: a.startswith(b),
    StringEndsWith: lambda a, b: a.endswith(b),
    StringContains: lambda a, b: b in a,
}


def at(ms: float) -> datetime:
    """The time so many ms after 1970; thousandths of a ms are microseconds."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(ms * 1000))


def truth(one: Filter, row: Mapping[str, Any]) -> bool | None:
    """True, False, or None for SQL's unknown."""
    if isinstance(one, Not):
        found = truth(one.child, row)
        return None if found is None else not found
    value = row[getattr(one, "attribute")[0]]  # noqa: B009 - Filter itself has none
    if isinstance(one, IsNull | IsNotNull):
        return (value is None) == isinstance(one, IsNull)
    wanted = getattr(one, "value", None)
    if isinstance(one, EqualNullSafe):
        return bool(value == wanted)
    if isinstance(one, In):
        if value is not None and value in one.value:
            return True
        return None if value is None or None in one.value else False
    if value is None or wanted is None:
        return None
    return bool(COMPARED[type(one)](value, wanted))


def meeting(rows: Iterable[Row], filters: Sequence[Filter]) -> list[Row]:
    """The rows for which all filters are true, in one order."""
    found = [row for row in rows if all(truth(one, row) is True for one in filters)]
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def _of(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    maybe_null = values | st.none()
    compared = st.sampled_from([EqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual])
    path = (column,)
    single = st.builds(lambda kind, value: kind(path, value), compared, values)
    several = st.builds(lambda some: In(path, tuple(some)), st.lists(maybe_null, max_size=3))
    safe = st.builds(lambda value: EqualNullSafe(path, value), maybe_null)
    nulls = st.sampled_from([IsNull(path), IsNotNull(path)])
    # Comparisons are as likely as all the rest, since they narrow the most.
    plain = single | single | several | safe | nulls
    return plain | plain | st.builds(Not, plain)


def filters(topics: Sequence[str], partitions: int, offsets: int, span_ms: int) -> st.SearchStrategy[list[Filter]]:
    """Up to three filters on topic, partition, offset, timestamp and value, around what a log holds."""
    times = st.builds(
        lambda ms, part: at(ms + part),
        st.integers(-2, span_ms + 2).map(BASE_MS.__add__),
        st.sampled_from([0, 0, 0.001, 0.999]),
    )
    of_topic = st.builds(
        lambda kind, text: kind(("topic",), text),
        st.sampled_from([StringStartsWith, StringEndsWith, StringContains]),
        st.sampled_from(["", "a", "b", "ab"]),
    )
    one = (
        _of("topic", st.sampled_from([*topics, "none"]))
        | of_topic
        | _of("partition", st.integers(-1, partitions))
        | _of("offset", st.integers(-1, offsets + 1) | st.sampled_from([2**63 - 1, -(2**63)]))
        | _of("timestamp", times | st.sampled_from([at(-1.0), at(0.0), at(-0.5)]))
        | _of("value", st.sampled_from([b"", b"x"]))
    )
    return st.lists(one, max_size=3)
