"""Filters that are pushed down change no row: random logs and filters, and what other connectors got wrong."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record
from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.data_source import FencepostDataSource
from fencepost.spark_connector.option_values import OptionError
from fencepost.spark_connector.source.reader import DataLossError
from tests.kit.batch_log import BatchLog
from tests.kit.spark_broker import FakeBroker
from tests.spark.source_world import Row, tasks
from tests.spark.sql_filters import BASE_MS, at, filters, meeting

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SPAN_MS = 6


def rows(broker: FakeBroker, pushed: Sequence[Filter] | None = None, **options: Any) -> list[Row]:
    """The rows of a query; with `pushed`, what Spark makes of them after a pushdown."""
    given = {"kafka.bootstrap.servers": str(broker.address), "subscribePattern": "[ab]", **options}
    if "subscribe" in given:
        del given["subscribePattern"]
    if pushed is not None:
        given["pushFilters"] = "true"
    source = FencepostDataSource(CaseInsensitiveDict(given))
    reader = source.reader(source.schema())
    left = list(reader.pushFilters(list(pushed))) if pushed is not None else []
    return meeting([row for some in tasks(reader, reader.partitions()) for row in some], left)


def timed(log: BatchLog, *times_ms: int, **more: Any) -> BatchLog:
    """One batch of a record for each time."""
    records = [Record(log.end + number, ms, None, b"x") for number, ms in enumerate(times_ms)]
    return log.raw(build_batch(records, base_offset=log.end, **more))


@st.composite
def logs(draw: st.DrawFn) -> BatchLog:
    """Times go back and forth, within batches, too; some batches are aborted, some have the time of their append."""
    log = BatchLog()
    moment = st.integers(0, SPAN_MS).map(BASE_MS.__add__) | st.sampled_from([-1, 0, 2**62])
    for _ in range(draw(st.integers(0, 4))):
        times = draw(st.lists(moment, min_size=1, max_size=4))
        match draw(st.integers(0, 4)):
            case 0:
                log.transaction([b"x"] * len(times), 1, draw(st.booleans()), time_ms=times[0])
            case 1:
                timed(log, *times, log_append_time_ms=BASE_MS + draw(st.integers(0, SPAN_MS)))
            case 2:
                timed(log.hole(2), *times)  # a log ends with a batch
            case _:
                timed(log, *times)
    return log


@settings(max_examples=150, deadline=None)
@given(
    found=st.tuples(logs(), logs(), logs()),
    wanted=filters(["a", "b"], 2, 12, SPAN_MS),
    minimum=st.sampled_from([None, "5"]),
    isolation=st.sampled_from(["read_committed", "read_uncommitted"]),
)
def test_the_rows_are_the_same_with_and_without_a_pushdown(
    found: tuple[BatchLog, BatchLog, BatchLog], wanted: list[Filter], minimum: str | None, isolation: str
) -> None:
    options = {"kafka.isolation.level": isolation, "columns": "topic,partition,offset,timestamp,value"}
    if minimum is not None:
        options["minPartitions"] = minimum
    with FakeBroker(dict(zip((A0, A1, B0), found, strict=True))) as broker:
        assert rows(broker, wanted, **options) == meeting(rows(broker, **options), wanted)


@pytest.fixture
def ordered() -> Iterator[FakeBroker]:
    """Ten records in each partition, a millisecond apart, in batches of five."""
    made = {}
    for tp in (A0, A1, B0):
        made[tp] = BatchLog()
        for begin in (0, 5):
            timed(made[tp], *(BASE_MS + begin + number for number in range(5)))
    with FakeBroker(made) as broker:
        yield broker


def places(found: list[Row]) -> list[tuple[str, int, int]]:
    return [(row["topic"], row["partition"], row["offset"]) for row in found]


def asked_of(broker: FakeBroker) -> set[TopicPartition]:
    """The partitions that a ListOffsets or Fetch named."""
    return {
        TopicPartition(getattr(topic, "name", None) or topic.topic, getattr(one, "partition_index", None) or 0)
        if name == "ListOffsets"
        else TopicPartition(topic.topic, one.partition)
        for name, request in broker.asked
        if name in ("ListOffsets", "Fetch")
        for topic in request.topics
        for one in topic.partitions
    }


def test_nothing_is_asked_of_partitions_that_are_left_out(ordered: FakeBroker) -> None:
    found = rows(ordered, [EqualTo(("topic",), "a"), In(("partition",), (1, 7))])
    assert places(found) == [("a", 1, offset) for offset in range(10)]
    assert asked_of(ordered) == {A1}


def test_only_the_wanted_offsets_are_fetched(ordered: FakeBroker) -> None:
    wanted = [GreaterThan(("offset",), 6), LessThanOrEqual(("offset",), 8), EqualTo(("topic",), "b")]
    assert places(rows(ordered, wanted)) == [("b", 0, 7), ("b", 0, 8)]
    assert ordered.fetch_offsets() == [7]
    assert rows(ordered, [EqualTo(("offset",), 10)]) == []
    assert ordered.fetch_offsets() == [7], "the log ends there, so nothing is fetched"


def test_a_time_is_looked_up_and_the_query_starts_there(ordered: FakeBroker) -> None:
    wanted = [GreaterThan(("timestamp",), at(BASE_MS + 6)), EqualTo(("topic",), "b")]
    assert places(rows(ordered, wanted)) == [("b", 0, 7), ("b", 0, 8), ("b", 0, 9)]
    assert ordered.fetch_offsets() == [7]


def test_options_still_bound_the_query_and_tasks_divide_what_is_left(ordered: FakeBroker) -> None:
    start, end = '{"a": {"0": 2, "1": 2}}', '{"a": {"0": 8, "1": 4}}'
    wanted: list[Filter] = [GreaterThanOrEqual(("offset",), 3)]
    options = {"subscribe": "a", "startingOffsets": start, "endingOffsets": end}
    assert places(rows(ordered, wanted, **options)) == [("a", 0, n) for n in range(3, 8)] + [("a", 1, 3)]
    given = {"kafka.bootstrap.servers": str(ordered.address), **options, "pushFilters": "TRUE", "minPartitions": "6"}
    source = FencepostDataSource(CaseInsensitiveDict(given))
    reader = source.reader(source.schema())
    assert list(reader.pushFilters(wanted)) == []
    assert [str(one) for one in reader.partitions()] == [
        "a-0[3:4]",
        "a-0[4:5]",
        "a-0[5:6]",
        "a-0[6:7]",
        "a-0[7:8]",
        "a-1[3:4]",
    ]


def test_offsets_for_partitions_that_filters_drop_are_still_checked(ordered: FakeBroker) -> None:
    wanted = [EqualTo(("partition",), 0)]
    with pytest.raises(ValueError, match="startingOffsets lacks a-1"):
        rows(ordered, wanted, subscribe="a", startingOffsets='{"a": {"0": 2}}')


@pytest.mark.parametrize(
    ("wanted", "lost"),
    [
        ([], True),
        ([GreaterThanOrEqual(("offset",), 4)], True),
        ([GreaterThanOrEqual(("offset",), 5)], False),
        ([EqualTo(("partition",), 1)], False),
        ([LessThan(("offset",), 5), EqualTo(("partition",), 0)], True),
        # The records that were deleted may have been as young as that.
        ([GreaterThan(("timestamp",), at(BASE_MS + 7))], True),
    ],
)
def test_data_loss_is_that_of_offsets_that_the_query_wants(
    ordered: FakeBroker, wanted: list[Filter], lost: bool
) -> None:
    ordered.logs[A0].start = 5
    del ordered.logs[A0].batches[0]
    options = {"subscribe": "a", "startingOffsets": '{"a": {"0": 0, "1": 0}}'}
    if lost:
        with pytest.raises(DataLossError, match="a-0 begins at offset 5"):
            rows(ordered, wanted, **options)
    expected = meeting(rows(ordered, failOnDataLoss="false", **options), wanted)
    assert rows(ordered, wanted, **options, failOnDataLoss="false") == expected
    if not lost:
        assert rows(ordered, wanted, **options) == expected


# What other connectors got wrong


def test_a_time_after_all_records_is_no_row_and_no_error(ordered: FakeBroker) -> None:
    """Trino 13167, 10494: no record was found, and that became offset -1. payloadbuilder 167: all records were read."""
    late = at(BASE_MS + 100)
    assert rows(ordered, [GreaterThan(("timestamp",), late)]) == []
    assert ordered.fetch_offsets() == []
    assert len(rows(ordered, [LessThan(("timestamp",), late)])) == 30


def test_a_latest_time_does_not_end_a_range_at_the_first_younger_record() -> None:
    """Trino 4805 (timestamp_upper_bound_force_push_down_enabled), Spark 23749: older records behind it were missing."""
    with FakeBroker({A0: timed(BatchLog(), BASE_MS, BASE_MS + 9, BASE_MS + 1)}) as broker:
        found = rows(broker, [LessThanOrEqual(("timestamp",), at(BASE_MS + 1))])
        assert places(found) == [("a", 0, 0), ("a", 0, 2)]
        between = [GreaterThanOrEqual(("timestamp",), at(BASE_MS + 1)), LessThan(("timestamp",), at(BASE_MS + 9))]
        assert places(rows(broker, between)) == [("a", 0, 2)]


def test_records_of_one_time_are_all_found() -> None:
    """Trino 4805, in review: the first record after a time was taken for the one behind the first of that time."""
    with FakeBroker({A0: timed(BatchLog(), *[BASE_MS] * 3, *[BASE_MS + 1] * 3)}) as broker:
        assert len(rows(broker, [GreaterThan(("timestamp",), at(BASE_MS))])) == 3
        assert len(rows(broker, [EqualTo(("timestamp",), at(BASE_MS))])) == 3
        assert len(rows(broker, [EqualTo(("timestamp",), at(BASE_MS + 1))])) == 3


def test_parts_of_a_millisecond_and_times_before_1970_are_exact() -> None:
    """Iceberg 1069 and ORC-611: literals with µs were cut to ms, and times before 1970 were rounded the other way."""
    with FakeBroker({A0: timed(BatchLog(), 0, 1, BASE_MS, BASE_MS + 1)}) as broker:
        assert len(rows(broker, [GreaterThan(("timestamp",), at(BASE_MS + 0.999))])) == 1
        assert len(rows(broker, [GreaterThanOrEqual(("timestamp",), at(BASE_MS + 0.001))])) == 1
        assert rows(broker, [EqualTo(("timestamp",), at(BASE_MS + 0.5))]) == []
        assert len(rows(broker, [GreaterThan(("timestamp",), at(-0.5))])) == 4
        assert len(rows(broker, [GreaterThan(("timestamp",), at(0.5))])) == 3


def test_all_filters_on_one_column_hold_together(ordered: FakeBroker) -> None:
    """payloadbuilder 167: a second bound replaced the first, and partitions were united."""
    wanted = [GreaterThan(("offset",), 7), GreaterThan(("offset",), 2), LessThan(("offset",), 9)]
    assert places(rows(ordered, wanted, subscribe="b")) == [("b", 0, 8)]
    assert rows(ordered, [EqualTo(("partition",), 0), EqualTo(("partition",), 1)]) == []


def test_the_largest_numbers_do_not_wrap_around(ordered: FakeBroker) -> None:
    """Spark 8157, Paimon 9810: a literal was cut to the column's type, and excluded what it should admit."""
    largest = 2**63 - 1
    assert len(rows(ordered, [LessThanOrEqual(("offset",), largest)])) == 30
    assert len(rows(ordered, [LessThan(("partition",), 2**31)])) == 30
    assert rows(ordered, [GreaterThan(("offset",), largest)]) == []
    assert len(rows(ordered, [LessThan(("timestamp",), at(253_402_300_799_999))])) == 30
    assert rows(ordered, [GreaterThan(("timestamp",), at(253_402_300_799_999))]) == []


def test_a_negated_list_is_not_the_negation_of_its_bounds(ordered: FakeBroker) -> None:
    """Spark 33365: NOT IN became the opposite of the list's smallest and largest value. Null makes it unknown."""
    assert {row["offset"] for row in rows(ordered, [Not(In(("offset",), (2, 7)))])} == {0, 1, 3, 4, 5, 6, 8, 9}
    assert {row["partition"] for row in rows(ordered, [Not(In(("partition",), (1, 7)))])} == {0}
    assert rows(ordered, [Not(In(("partition",), (1, None)))]) == []


# The option


def test_spark_sees_push_filters_only_where_the_option_asks_for_it(ordered: FakeBroker) -> None:
    """By default Spark refuses a reader that has it: its setting filterPushdown.enabled is false."""
    for value, is_defined in (("false", False), ("true", True)):
        given = {"kafka.bootstrap.servers": str(ordered.address), "subscribe": "a", "pushFilters": value}
        source = FencepostDataSource(CaseInsensitiveDict(given))
        defined = source.reader(source.schema()).pushFilters.__func__  # type: ignore[attr-defined]
        assert (defined is not DataSourceReader.pushFilters) == is_defined


def test_a_spark_without_filters_refuses_the_option(ordered: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fencepost.spark_connector.source.filters", None)
    with pytest.raises(OptionError, match=r"option pushFilters needs Spark 4.1 or newer, .*; this is \d"):
        rows(ordered, [])


def test_a_stream_says_that_the_option_changes_nothing(ordered: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    given = {"kafka.bootstrap.servers": str(ordered.address), "subscribe": "a", "pushFilters": "true"}
    source = FencepostDataSource(CaseInsensitiveDict(given))
    source.streamReader(source.schema()).stop()
    assert "option pushFilters has no effect in a streaming query" in caplog.text


def test_an_error_of_a_broker_while_a_time_is_looked_up_is_tried_again(ordered: FakeBroker) -> None:
    failed: list[str] = []

    def fault(name: str, request: Any) -> ErrorCode | str | None:
        times = [one.timestamp for topic in request.topics for one in topic.partitions] if name == "ListOffsets" else []
        if not failed and any(time > 0 for time in times):
            failed.append(name)
            return "close"
        return None

    ordered.fault = fault
    assert len(rows(ordered, [GreaterThan(("timestamp",), at(BASE_MS + 6))])) == 9
    assert failed == ["ListOffsets"]
