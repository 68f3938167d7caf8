"""Spark's filters as conditions of the plan. Spark has them from version 4.1 on: with 4.0 the import fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from fencepost.spark_connector.source.narrowing import OF_PARTITIONS, Condition

_OPERATORS: Mapping[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
    StringStartsWith: "starts with",
    StringEndsWith: "ends with",
    StringContains: "contains",
}
_TYPES: Mapping[str, type] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
_NEVER_NULL = ("topic", "partition", "offset")
"""`timestamp` is null for a time beyond Spark's range."""
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND, _MILLISECOND = timedelta(microseconds=1), timedelta(milliseconds=1)


class Pushed(NamedTuple):
    """What a plan takes of a query's filters."""

    conditions: tuple[Condition, ...]
    left: list[Filter]
    """The filters that Spark must evaluate: other ones, and those that only narrow the ranges."""


def pushed(filters: Iterable[Filter]) -> Pushed:
    """Divide the filters of a query, which all hold for its rows."""
    conditions: list[Condition] = []
    left: list[Filter] = []
    for one in filters:
        if isinstance(one, IsNotNull) and len(one.attribute) == 1 and one.attribute[0] in _NEVER_NULL:
            continue
        condition = _condition(one)
        if condition is not None:
            conditions.append(condition)
        if condition is None or not _is_exact(condition):
            left.append(one)
    return Pushed(tuple(conditions), left)


def _is_exact(condition: Condition) -> bool:
    """Whether the ranges of the plan hold no row that breaks the condition."""
    return condition.column in OF_PARTITIONS or (condition.column == "offset" and condition.operator != "in")


def _condition(one: Filter) -> Condition | None:
    """What the filter says of partitions, offsets or times; None if it says nothing that a plan can use."""
    is_negated = isinstance(one, Not)
    child = one.child if isinstance(one, Not) else one
    sign = _OPERATORS.get(type(child))
    path: tuple[str, ...] = getattr(child, "attribute", ())
    if sign is None or len(path) != 1 or path[0] not in _TYPES:
        return None
    column, value = path[0], getattr(child, "value", None)
    values = tuple(value) if sign == "in" and isinstance(value, tuple | list) else (value,)
    # Null in a list of values makes NOT IN unknown for every row: only Spark can evaluate it.
    if any(type(each) is not _TYPES[column] for each in values):
        return None
    if column == "timestamp":
        return None if is_negated else _from_time(sign, values)
    if is_negated and column not in OF_PARTITIONS:
        return None
    return Condition(column, sign, values if sign == "in" else value, is_negated)


def _from_time(sign: str, times: tuple[Any, ...]) -> Condition | None:
    """The earliest time in whole ms. Spark's times have µs, Kafka's have ms."""
    if sign not in ("=", ">", ">=", "in") or not times or any(each.tzinfo is None for each in times):
        return None
    since = min(times) - _1970
    if sign == ">":
        since += _MICROSECOND
    return Condition("timestamp", ">=", -(-since // _MILLISECOND))
