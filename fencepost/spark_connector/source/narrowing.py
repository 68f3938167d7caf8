"""What the filters of a query leave of its ranges: partitions that are dropped, offsets and times that are cut off."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.protocol.topics import TopicPartition
from fencepost.protocol.varints import LONG_MAX
from fencepost.spark_connector.offsets import Offsets
from fencepost.spark_connector.source.ranges import OffsetRange

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, values: value in values,
    "starts with": str.startswith,
    "ends with": str.endswith,
    "contains": operator.contains,
}
OF_PARTITIONS = ("topic", "partition")
"""The columns that have one value in all rows of a partition."""


class Condition(NamedTuple):
    """One condition that every row of the query meets. No value is None.

    `column` is topic, partition, offset or timestamp. `operator` is one of `=`, `<`, `<=`, `>`, `>=`, `in`, for topics
    also `starts with`, `ends with` and `contains`. For `in` the value is a tuple. A time has only the operator `>=`;
    its value is in ms since 1970. Only conditions on topic and partition can be negated.
    """

    column: str
    operator: str
    value: Any
    is_negated: bool = False

    def admits(self, tp: TopicPartition) -> bool:
        """Whether a partition can have rows that meet the condition."""
        if self.column not in OF_PARTITIONS:
            return True
        return _COMPARE[self.operator](getattr(tp, self.column), self.value) != self.is_negated


def admitted(partitions: Iterable[TopicPartition], conditions: Sequence[Condition]) -> list[TopicPartition]:
    """The partitions that can have rows of the query, in the given order."""
    return [tp for tp in partitions if all(condition.admits(tp) for condition in conditions)]


def narrowed(ranges: Iterable[OffsetRange], conditions: Sequence[Condition]) -> list[OffsetRange]:
    """The ranges without the partitions and offsets that no row of the query has. Empty ranges are left out.

    A range that ends before it starts stays as it is: that is data loss, which the planner reports.
    """
    first, stop = offset_bounds(conditions)
    left = []
    for one in ranges:
        if not all(condition.admits(one.tp) for condition in conditions):
            continue
        if one.start <= one.stop:
            one = one._replace(start=max(one.start, first), stop=min(one.stop, stop))
            if one.start >= one.stop:
                continue
        left.append(one)
    return left


def offset_bounds(conditions: Iterable[Condition]) -> tuple[int, int]:
    """The first offset that meets all conditions on offsets, and the offset behind the last one."""
    first, stop = 0, LONG_MAX
    for condition in conditions:
        if condition.column != "offset":
            continue
        value = condition.value
        match condition.operator:
            case "=":
                first, stop = max(first, value), min(stop, value + 1)
            case "in":
                first, stop = max(first, min(value, default=stop)), min(stop, max(value, default=-1) + 1)
            case "<":
                stop = min(stop, value)
            case "<=":
                stop = min(stop, value + 1)
            case ">":
                first = max(first, value + 1)
            case ">=":
                first = max(first, value)
    return first, stop


def earliest_ms(conditions: Iterable[Condition]) -> int | None:
    """The earliest time of a row, in ms since 1970; None if every record may be a row.

    ListOffsets takes a negative time for another question, and records without a timestamp have -1. So a time up to
    1970 is no bound.
    """
    latest = max((condition.value for condition in conditions if condition.column == "timestamp"), default=0)
    return latest if latest > 0 else None


def from_time(ranges: Iterable[OffsetRange], found: Offsets) -> list[OffsetRange]:
    """The ranges from the first record of a time or later on, as ListOffsets found it; -1 means that there is none.

    All records before that one are older. Later ones may be older, too: times in a log need not rise. So a latest time
    cannot lower the end of a range.
    """
    left = [one._replace(start=max(one.start, found[one.tp])) for one in ranges if found[one.tp] >= 0]
    return [one for one in left if one.start < one.stop]
