"""The Spark data source "fencepost": batch and stream readers over Kafka's protocol, read_committed by default."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fencepost.spark_connector.cluster import Cluster
from fencepost.spark_connector.offsets import Offsets, OffsetTree, offsets_of, tree_of
from fencepost.spark_connector.options import Mode, OptionError, SourceOptions, parse_options
from fencepost.spark_connector.planner import OffsetRange, Planner, fetch_settings
from fencepost.spark_connector.reader import RangeReader

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}


def spark_schema(columns: tuple[str, ...]) -> StructType:
    """The chosen columns with the types of Spark's Kafka source, all of them nullable as there."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


class FencepostDataSource(DataSource):
    """`spark.read.format("fencepost")` and `spark.readStream.format("fencepost")`.

    Options and schema are those of Spark's Kafka source; see the Spark guide for the ones of our own.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "fencepost"

    def schema(self) -> StructType:
        """The columns that the options ask for; the options are checked here for the first time."""
        return spark_schema(parse_options(self.options).columns)

    def reader(self, schema: StructType) -> BatchReader:
        """The reader of a batch query."""
        return BatchReader(self._options(schema, Mode.BATCH))

    def streamReader(self, schema: StructType) -> StreamReader:
        """The reader of a streaming query; one lives on the driver for as long as the query."""
        return StreamReader(self._options(schema, Mode.STREAM))

    def _options(self, schema: StructType, mode: Mode) -> SourceOptions:
        options = parse_options(self.options, mode)
        expected = spark_schema(options.columns)
        if [(f.name, f.dataType) for f in schema.fields] != [(f.name, f.dataType) for f in expected.fields]:
            raise OptionError(f"the schema of this source is fixed: {expected.simpleString()}; choose with 'columns'")
        return options


class RangePartition(InputPartition):
    """One task's work, as Spark carries it to the task."""

    def __init__(self, work: OffsetRange) -> None:
        super().__init__(work)

    def __repr__(self) -> str:
        return f"{self.value.tp}[{self.value.start}:{self.value.stop}]"


def read_range(options: SourceOptions, partition: InputPartition) -> Iterator[Any]:
    """Runs in a Spark task: the partition's visible records as Arrow batches; none for Spark's empty placeholder."""
    if not isinstance(partition, RangePartition):
        return
    work: OffsetRange = partition.value
    leaders = {work.tp: work.leader} if work.leader is not None else {}
    cluster = Cluster(options.connection, leaders)
    try:
        yield from RangeReader(cluster, work.tp, work.start, work.stop, fetch_settings(options)).arrow_batches()
    finally:
        cluster.close()


class BatchReader(DataSourceReader):
    """Reads what is there, and stable, at the moment of planning."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Fix start and end, and cut the work up."""
        cluster = Cluster(self._options.connection)
        try:
            return [RangePartition(work) for work in Planner(self._options, cluster).batch()]
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one partition; runs in a task."""
        return read_range(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver. Offsets are Kafka's own, {"topic": {"0": 23}}, the next to be read."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster = Cluster(options.connection)
        self._planner = Planner(options, self._cluster)
        self._available_now: Offsets | None = None
        self._waiting_since: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy for `read` only: connections stay on the driver.
        return {"_options": self._options}

    def initialOffset(self) -> OffsetTree:
        """Where a new query begins; a restarted one goes by its checkpoint."""
        return tree_of(self._planner.starting())

    def getDefaultReadLimit(self) -> ReadLimit:
        """What maxOffsetsPerTrigger and minOffsetsPerTrigger say; with both, the minimum is minded by latestOffset."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: OffsetTree, limit: ReadLimit) -> OffsetTree:
        """The end of the next micro-batch, fixed now at the last stable offset or below it."""
        begin = offsets_of(start)
        end = self._available_now if self._available_now is not None else self._planner.latest()
        end = self._planner.not_before(begin, end)
        if isinstance(limit, ReadAllAvailable):
            return tree_of(end)
        if self._available_now is None and self._too_little(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = self._planner.limited(begin, end, limit.max_rows)
        return tree_of(end)

    def reportLatestOffset(self) -> OffsetTree:
        """The high watermarks: in a query's progress, what lies between them and the end offset is not decided yet."""
        return tree_of(self._planner.high_watermarks())

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember where everything ends now; the query stops there."""
        self._available_now = self._planner.latest()

    def partitions(self, start: OffsetTree, end: OffsetTree) -> list[InputPartition]:
        """The work of one micro-batch."""
        return [RangePartition(work) for work in self._planner.ranges(offsets_of(start), offsets_of(end))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one partition; runs in a task."""
        return read_range(self._options, partition)

    def commit(self, end: OffsetTree) -> None:
        """Nothing: the position is in Spark's checkpoint."""

    def stop(self) -> None:
        """End the driver's connections."""
        self._cluster.close()

    def _too_little(self, begin: Offsets, end: Offsets) -> bool:
        """Whether minOffsetsPerTrigger says to wait, which it does for maxTriggerDelay at most."""
        smallest = self._options.min_offsets_per_trigger
        if smallest is None:
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        there = sum(offset - begin.get(tp, 0) for tp, offset in end.items())
        if there < smallest and (now - self._waiting_since) * 1000 < self._options.max_trigger_delay_ms:
            return True
        self._waiting_since = now
        return False
