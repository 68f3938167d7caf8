"""The Spark data source "fencepost": batch and stream readers over Kafka's protocol, read_committed by default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
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

from fencepost.spark_connector.option_values import OptionError
from fencepost.spark_connector.source.options import Mode, SourceOptions, parse_options
from fencepost.spark_connector.source.planner import Planner
from fencepost.spark_connector.source.sources import open_source
from fencepost.spark_connector.source.stream import stream_reader
from fencepost.spark_connector.source.task import RangePartition, read_range
from fencepost.spark_connector.worker.delayed_ack import QuickAckOnUnpickle
from fencepost.spark_connector.worker.reused_worker import WORKER

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from fencepost.spark_connector.source.narrowing import Condition

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
    """The chosen columns. Their types are those of Spark's Kafka source, and all are nullable."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


class FencepostDataSource(DataSource):
    """`spark.read.format("fencepost")` and `spark.readStream.format("fencepost")`.

    Options and schema are those of Spark's Kafka source. The Spark guide lists fencepost's own options.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        WORKER.settle()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "fencepost"

    def schema(self) -> StructType:
        """The columns that the options choose. This is the first check of the options."""
        return spark_schema(parse_options(self.options).columns)

    def reader(self, schema: StructType) -> BatchReader:
        """The reader of a batch query. Raises OptionError for options that need a later version of Spark."""
        options = self._options(schema, Mode.BATCH)
        return FilteredReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query. The driver keeps one reader until the query ends."""
        return stream_reader(self._options(schema, Mode.STREAM))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a DataFrame. It writes one transaction."""
        from fencepost.spark_connector.sink.sink import batch_writer

        WORKER.settle()
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a streaming query. It writes each micro-batch in one transaction."""
        from fencepost.spark_connector.sink.sink import stream_writer

        WORKER.settle()
        return stream_writer(self.options, schema)

    def _options(self, schema: StructType, mode: Mode) -> SourceOptions:
        WORKER.settle()
        options = parse_options(self.options, mode)
        expected = spark_schema(options.columns)
        if [(f.name, f.dataType) for f in schema.fields] != [(f.name, f.dataType) for f in expected.fields]:
            raise OptionError(f"the schema of this source is fixed: {expected.simpleString()}; choose with 'columns'")
        return options


class BatchReader(QuickAckOnUnpickle, DataSourceReader):
    """Reads up to the last stable offsets of the moment when the query is planned."""

    _conditions: tuple[Condition, ...] = ()
    """Of the query's filters, as far as the plan uses them."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Fix the start and the end, and divide the ranges into tasks."""
        source = open_source(self._options)
        try:
            return [RangePartition(work) for work in Planner(self._options, source, self._conditions).batch()]
        finally:
            source.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, partition)


class FilteredReader(BatchReader):
    """A `BatchReader` whose plan leaves out what the query's filters exclude.

    It is a class of its own because Spark refuses a reader with `pushFilters` while its setting
    `spark.sql.python.filterPushdown.enabled` is false, which is the default.
    """

    def __init__(self, options: SourceOptions) -> None:
        """Raises OptionError if this Spark has no filters for Python sources."""
        super().__init__(options)
        try:
            from fencepost.spark_connector.source.filters import pushed
        except ImportError:
            needs = "needs Spark 4.1 or newer, which can push filters to a Python source"
            raise OptionError(f"option pushFilters {needs}; this is {pyspark.__version__}") from None
        self._pushed = pushed

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy only to call `read`. The conditions stay on the driver.
        return {"_options": self._options}

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use the filters on topic, partition, offset and timestamp. Returns those that Spark must evaluate."""
        self._conditions, left = self._pushed(filters)
        return left
