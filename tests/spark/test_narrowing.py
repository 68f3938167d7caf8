"""What filters leave of a plan's ranges, and which of them Spark evaluates again: tables without any broker."""

from datetime import datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

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
    StringStartsWith,
)

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.source.filters import pushed
from fencepost.spark_connector.source.narrowing import Condition, admitted, earliest_ms, from_time, narrowed
from fencepost.spark_connector.source.ranges import OffsetRange
from tests.spark.sql_filters import at

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
WHOLE = [(A0, 10, 50), (A1, 0, 20), (B0, 30, 40)]
LONG_MAX = 2**63 - 1


def of(*conditions: Condition) -> list[tuple[TopicPartition, int, int]]:
    return [(one.tp, one.start, one.stop) for one in narrowed([OffsetRange(*one) for one in WHOLE], conditions)]


TOPIC, PARTITION, OFFSET = "topic", "partition", "offset"


@pytest.mark.parametrize(
    ("conditions", "left"),
    [
        ([], WHOLE),
        ([(TOPIC, "=", "a")], WHOLE[:2]),
        ([(TOPIC, "in", ("b", "c"))], WHOLE[2:]),
        ([(TOPIC, "=", "a", True)], WHOLE[2:]),
        ([(TOPIC, "starts with", "b")], WHOLE[2:]),
        ([(TOPIC, ">", "a")], WHOLE[2:]),
        ([(PARTITION, "=", 0)], [WHOLE[0], WHOLE[2]]),
        ([(PARTITION, "=", 0), (PARTITION, "=", 1)], []),
        ([(PARTITION, ">=", 1)], WHOLE[1:2]),
        ([(PARTITION, "in", ())], []),
        ([(PARTITION, "in", (0,), True), (TOPIC, "=", "a")], WHOLE[1:2]),
        ([(OFFSET, "=", 30)], [(A0, 30, 31), (B0, 30, 31)]),
        ([(OFFSET, ">=", 20)], [(A0, 20, 50), (B0, 30, 40)]),
        ([(OFFSET, ">", 19)], [(A0, 20, 50), (B0, 30, 40)]),
        ([(OFFSET, "<", 10)], [(A1, 0, 10)]),
        ([(OFFSET, "<=", 10)], [(A0, 10, 11), (A1, 0, 11)]),
        ([(OFFSET, "in", (5, 12))], [(A0, 10, 13), (A1, 5, 13)]),
        ([(OFFSET, "in", ())], []),
        ([(OFFSET, ">", 12), (OFFSET, ">", 14), (OFFSET, "<", 30), (OFFSET, "<", 18)], [(A0, 15, 18), (A1, 15, 18)]),
        ([(OFFSET, ">", 12), (OFFSET, "<", 13)], []),
        ([(OFFSET, ">", LONG_MAX)], []),
        ([(OFFSET, "<=", LONG_MAX), (OFFSET, ">=", -LONG_MAX)], WHOLE),
        ([(OFFSET, "=", -1)], []),
        ([("timestamp", ">=", 10**12)], WHOLE),
    ],
)
def test_ranges_lose_what_no_row_of_the_query_has(conditions: list[Any], left: list[Any]) -> None:
    given = [Condition(*one) for one in conditions]
    assert of(*given) == left
    assert [tp for tp, *_ in left if tp not in admitted([A0, A1, B0], given)] == []


def test_a_range_that_ends_before_it_starts_is_kept_for_the_report_of_data_loss() -> None:
    back = OffsetRange(A0, 50, 10)
    assert narrowed([back, OffsetRange(A1, 5, 5)], [Condition(OFFSET, ">", 70)]) == [back]
    assert narrowed([back], [Condition(PARTITION, "=", 1)]) == []


def test_a_time_moves_starts_only_and_drops_partitions_without_a_record_since() -> None:
    ranges = [OffsetRange(*one) for one in WHOLE]
    assert from_time(ranges, {A0: 12, A1: 25, B0: -1}) == [OffsetRange(A0, 12, 50)]
    assert from_time(ranges, {A0: 3, A1: 0, B0: 40}) == ranges[:2]


@pytest.mark.parametrize(
    ("one", "condition", "is_left"),
    [
        (EqualTo(("topic",), "a"), Condition("topic", "=", "a"), False),
        (EqualNullSafe(("partition",), 1), Condition("partition", "=", 1), False),
        (In(("partition",), (1, 2)), Condition("partition", "in", (1, 2)), False),
        (Not(In(("partition",), (1, 2))), Condition("partition", "in", (1, 2), True), False),
        (Not(EqualTo(("topic",), "a")), Condition("topic", "=", "a", True), False),
        (StringContains(("topic",), "a"), Condition("topic", "contains", "a"), False),
        (GreaterThan(("offset",), 5), Condition("offset", ">", 5), False),
        (LessThanOrEqual(("offset",), 5), Condition("offset", "<=", 5), False),
        (In(("offset",), (5, 9)), Condition("offset", "in", (5, 9)), True),
        (Not(EqualTo(("offset",), 5)), None, True),
        (IsNotNull(("offset",)), None, False),
        (IsNotNull(("timestamp",)), None, True),
        (IsNull(("offset",)), None, True),
        (Not(IsNotNull(("offset",))), None, True),
        (EqualTo(("value",), b"x"), None, True),
        (IsNotNull(("value",)), None, True),
        (IsNotNull(("headers", "key")), None, True),
        (EqualTo(("headers", "key"), "a"), None, True),
        (EqualTo(("offset",), True), None, True),
        (EqualTo(("offset",), 5.0), None, True),
        (StringStartsWith(("value",), "a"), None, True),
        # Null makes a comparison unknown, and NOT IN with it, too.
        (EqualTo(("partition",), None), None, True),
        (EqualNullSafe(("partition",), None), None, True),
        (In(("partition",), (1, None)), None, True),
        (Not(In(("partition",), (1, None))), None, True),
        # Kafka's times are whole ms, Spark's have µs.
        (GreaterThanOrEqual(("timestamp",), at(1000)), Condition("timestamp", ">=", 1000), True),
        (GreaterThan(("timestamp",), at(1000)), Condition("timestamp", ">=", 1001), True),
        (EqualTo(("timestamp",), at(1000)), Condition("timestamp", ">=", 1000), True),
        (GreaterThanOrEqual(("timestamp",), at(1000.001)), Condition("timestamp", ">=", 1001), True),
        (GreaterThan(("timestamp",), at(1000.999)), Condition("timestamp", ">=", 1001), True),
        (GreaterThanOrEqual(("timestamp",), at(-1.5)), Condition("timestamp", ">=", -1), True),
        (In(("timestamp",), (at(2000), at(1000))), Condition("timestamp", ">=", 1000), True),
        (In(("timestamp",), ()), None, True),
        (LessThan(("timestamp",), at(1000)), None, True),
        (LessThanOrEqual(("timestamp",), at(1000)), None, True),
        (Not(EqualTo(("timestamp",), at(1000))), None, True),
        (GreaterThan(("timestamp",), datetime(2026, 1, 1)), None, True),
        (EqualTo(("timestamp",), None), None, True),
    ],
)
def test_what_a_plan_takes_of_a_filter_and_what_spark_evaluates(
    one: Filter, condition: Condition | None, is_left: bool
) -> None:
    conditions, left = pushed([one])
    assert list(conditions) == ([] if condition is None else [condition])
    assert [found is one for found in left] == [True] * is_left, "Spark knows its filters by reference"


def test_the_latest_of_several_times_counts_and_none_before_1970() -> None:
    """ListOffsets takes -1 and -2 for the end and the start of a log, and records without a time have -1."""
    assert earliest_ms([Condition("timestamp", ">=", ms) for ms in (5, 9, 7)]) == 9
    assert earliest_ms([Condition("timestamp", ">=", ms) for ms in (-2, -1, 0)]) is None
    assert earliest_ms([Condition("offset", ">=", 9)]) is None
