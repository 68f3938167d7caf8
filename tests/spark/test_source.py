"""The source's readers as Spark calls them on its driver, without a JVM: offsets, limits, and what goes to tasks."""

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import LongType, StructField, StructType

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.data_source import FencepostDataSource, spark_schema
from fencepost.spark_connector.option_values import OptionError
from fencepost.spark_connector.source import limited_stream
from fencepost.spark_connector.source.planner import PlanError
from fencepost.spark_connector.source.task import RangePartition
from pyspark_fencepost import DefaultSource
from tests.kit.batch_log import BatchLog
from tests.kit.spark_broker import FakeBroker

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BEGINS = {"t (first batch)": {"0": 0, "1": 0}}
"""The end of the first micro-batch says where that begins."""


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    logs = {T0: BatchLog().data(b"a", b"b").aborted_run(1, b"x").data(b"c"), T1: BatchLog().data(b"d", b"e")}
    with FakeBroker(logs) as serving:
        yield serving


def data_source(broker: FakeBroker, **options: str) -> FencepostDataSource:
    given = {"kafka.bootstrap.servers": str(broker.address), "subscribe": "t", **options}
    return FencepostDataSource(CaseInsensitiveDict(given))


@pytest.fixture
def stream(broker: FakeBroker) -> Iterator[Any]:
    """Makes stream readers and ends their connections."""
    made: list[Any] = []

    def make(**options: str) -> Any:
        chosen = data_source(broker, startingOffsets="earliest", **options)
        made.append(chosen.streamReader(chosen.schema()))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def read(reader: Any, partitions: list[InputPartition]) -> list[bytes]:
    """As a task does it: with a copy of the reader that came by pickle."""
    copied = cloudpickle.loads(cloudpickle.dumps(reader))
    work = cloudpickle.loads(cloudpickle.dumps(partitions))
    return [row["value"] for one in work for batch in copied.read(one) for row in batch.to_pylist()]


def test_sparks_discovery_finds_the_source_under_its_name() -> None:
    assert DefaultSource is FencepostDataSource
    assert DefaultSource.name() == "fencepost"


def test_a_batch_reader_plans_and_its_copy_reads(broker: FakeBroker) -> None:
    chosen = data_source(broker)
    reader = chosen.reader(chosen.schema())
    partitions = reader.partitions()
    assert [repr(partition) for partition in partitions] == ["t-0[0:5]", "t-1[0:2]"]
    assert read(reader, partitions) == [b"a", b"b", b"c", b"d", b"e"]


def test_sparks_placeholder_for_no_work_reads_nothing(broker: FakeBroker) -> None:
    chosen = data_source(broker)
    assert read(chosen.reader(chosen.schema()), [InputPartition(None)]) == []


def test_a_schema_of_the_users_own_is_refused(broker: FakeBroker) -> None:
    with pytest.raises(OptionError, match="the schema of this source is fixed"):
        data_source(broker).reader(StructType([StructField("offset", LongType())]))
    narrowed = data_source(broker, columns="offset")
    assert narrowed.reader(StructType([StructField("offset", LongType(), False)])) is not None
    assert narrowed.schema() == spark_schema(("offset",))


def test_a_stream_goes_from_its_initial_offset_to_the_latest(stream: Any) -> None:
    reader = stream()
    start = reader.initialOffset()
    assert start == {"t": {"0": 0, "1": 0}} | BEGINS
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"t": {"0": 5, "1": 2}} | BEGINS
    assert read(reader, reader.partitions(start, end)) == [b"a", b"b", b"c", b"d", b"e"]
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.partitions(end, end) == []


def test_the_latest_offset_reported_is_what_is_written_so_that_lag_behind_an_open_transaction_shows(
    broker: FakeBroker, stream: Any
) -> None:
    broker.logs[T0].stable = 3
    reader = stream()
    assert reader.latestOffset({"t": {"0": 0, "1": 0}}, ReadAllAvailable()) == {"t": {"0": 3, "1": 2}}
    assert reader.reportLatestOffset() == {"t": {"0": 5, "1": 2}, "t (last stable)": {"0": 3}}
    broker.logs[T0].stable = None
    assert reader.reportLatestOffset() == {"t": {"0": 5, "1": 2}}


def test_the_limits_that_options_set_are_told_to_spark(stream: Any) -> None:
    assert stream().getDefaultReadLimit() == ReadAllAvailable()
    assert stream(maxOffsetsPerTrigger="5").getDefaultReadLimit() == ReadMaxRows(5)
    assert stream(maxRecordsPerTrigger="5").getDefaultReadLimit() == ReadMaxRows(5)
    assert stream(minOffsetsPerTrigger="3").getDefaultReadLimit() == ReadMinRows(3)
    both = stream(minOffsetsPerTrigger="3", maxOffsetsPerTrigger="5")
    assert both.getDefaultReadLimit() == ReadMaxRows(5)


def sizes_of(reader: Any, start: Any) -> list[int]:
    """How many records each micro-batch has, until nothing is left."""
    sizes: list[int] = []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        sizes.append(len(read(reader, reader.partitions(start, end))))
        start = end
    return sizes


def test_a_limit_of_records_counts_visible_ones_and_a_limit_of_offsets_counts_all(stream: Any) -> None:
    """Partition 0 has three records, an aborted one and a marker; partition 1 has two records."""
    reader = stream(maxRecordsPerTrigger="2")
    assert sizes_of(reader, reader.initialOffset()) == [2, 2, 1]
    reader = stream(maxOffsetsPerTrigger="1")
    assert sizes_of(reader, reader.initialOffset()) == [2, 2, 0, 0, 1]


def test_the_smaller_of_several_limits_counts(stream: Any) -> None:
    start = {"t": {"0": 0, "1": 0}}
    offsets, records = {"maxOffsetsPerTrigger": "4"}, {"maxRecordsPerTrigger": "1"}
    ends = [stream(**one).latestOffset(start, ReadMaxRows(1)) for one in (offsets, records, offsets | records)]
    assert ends == [{"t": {"0": 2, "1": 1}}, {"t": {"0": 1, "1": 1}}, {"t": {"0": 1, "1": 1}}]


def test_too_few_offsets_wait_for_the_trigger_delay_but_the_first_trigger_never_waits(
    stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """minOffsetsPerTrigger counts offsets, as with Spark's Kafka source: here 7, of which 5 are visible records."""
    now = [100.0]
    monkeypatch.setattr(limited_stream.time, "monotonic", lambda: now[0])
    reader = stream(minOffsetsPerTrigger="8", maxTriggerDelay="30s")
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    everything = {"t": {"0": 5, "1": 2}} | BEGINS
    assert reader.latestOffset(start, limit) == everything
    assert reader.latestOffset(start, limit) == start
    now[0] += 29
    assert reader.latestOffset(start, limit) == start
    now[0] += 2
    assert reader.latestOffset(start, limit) == everything
    assert reader.latestOffset(start, limit) == start
    enough = stream(minOffsetsPerTrigger="7")
    assert [enough.latestOffset(start, ReadMinRows(7)) for _ in range(2)] == [everything, everything]


def test_available_now_ends_where_it_was_when_it_began(broker: FakeBroker, stream: Any) -> None:
    reader = stream(minOffsetsPerTrigger="100")
    reader.prepareForTriggerAvailableNow()
    broker.logs[T1].data(b"later")
    start = reader.initialOffset()
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == {"t": {"0": 5, "1": 2}} | BEGINS


def test_available_now_does_not_go_back_behind_where_a_query_has_read(broker: FakeBroker, stream: Any) -> None:
    broker.logs[T0].stable = 3
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({"t": {"0": 4, "1": 2}}, ReadAllAvailable()) == {"t": {"0": 4, "1": 2}}


@pytest.fixture
def spark_4_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark without pyspark.sql.streaming.datasource, as 4.0 and 4.1 are."""
    monkeypatch.setitem(sys.modules, "fencepost.spark_connector.source.limited_stream", None)


@pytest.mark.usefixtures("spark_4_0")
def test_a_spark_that_knows_no_limits_reads_all_there_is(broker: FakeBroker, stream: Any) -> None:
    reader = stream()
    assert list(inspect.signature(reader.latestOffset).parameters) == [], "by this Spark tells what a source can do"
    start, end = reader.initialOffset(), reader.latestOffset()
    assert end == {"t": {"0": 5, "1": 2}} | BEGINS
    assert read(reader, reader.partitions(start, end)) == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.usefixtures("spark_4_0")
@pytest.mark.parametrize(
    "name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxRecordsPerTrigger", "maxBytesPerTrigger"]
)
def test_a_spark_that_knows_no_limits_says_which_one_does(stream: Any, name: str) -> None:
    with pytest.raises(OptionError, match=rf"option {name} needs Spark 4\.2 or newer"):
        stream(**{name: "5"})


@pytest.mark.usefixtures("spark_4_0")
def test_a_spark_that_tells_no_start_is_not_led_back_behind_it(broker: FakeBroker, stream: Any) -> None:
    broker.logs[T0].stable = 3
    reader = stream(startingTimestamp="0")
    start = {"t": {"0": 4, "1": 2}}
    with pytest.raises(PlanError, match="t-0: the query has read beyond the last stable offset"):
        reader.partitions(start, reader.latestOffset())
    assert reader.partitions(start, start) == []
    assert reader.latestOffset() == start, "now it knows"
    broker.logs[T0].stable = None
    assert read(reader, reader.partitions(start, reader.latestOffset())) == [b"c"]


def test_a_topic_that_is_not_there_is_named(broker: FakeBroker) -> None:
    chosen = data_source(broker, subscribe="nowhere")
    with pytest.raises(PlanError, match="there is no topic nowhere"):
        chosen.reader(chosen.schema()).partitions()


def test_a_range_says_what_it_is(broker: FakeBroker) -> None:
    chosen = data_source(broker, minPartitions="5")
    partitions = chosen.reader(chosen.schema()).partitions()
    assert all(isinstance(partition, RangePartition) for partition in partitions)
    assert len(partitions) >= 5
