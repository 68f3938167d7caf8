"""The stream reader for every Spark 4, and the choice of the reader for this Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from fencepost.spark_connector.network.cluster import Cluster
from fencepost.spark_connector.offsets import Offsets, OffsetTree, offsets_of, tree_of
from fencepost.spark_connector.option_values import OptionError
from fencepost.spark_connector.source.group import GroupPosition
from fencepost.spark_connector.source.options import SourceOptions
from fencepost.spark_connector.source.planner import PlanError, Planner
from fencepost.spark_connector.source.sources import open_source
from fencepost.spark_connector.source.task import RangePartition, read_range
from fencepost.spark_connector.worker.delayed_ack import QuickAckOnUnpickle


class UnlimitedStreamReader(QuickAckOnUnpickle, DataSourceStreamReader):
    """Plans micro-batches on the driver. Offsets are those of the next records to read: {"topic": {"0": 23}}.

    Spark before 4.2 cannot limit a Python source. A micro-batch then holds everything up to the last stable offset.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._source = open_source(options)
        self._planner = Planner(options, self._source)
        self._reached: Offsets = {}
        group = options.commit_group
        self._brokers = Cluster(options.connection)
        """Of the group; it connects when it is needed."""
        self._position = GroupPosition(self._brokers, group) if group is not None else None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy only to call `read`. Connections stay on the driver.
        return {"_options": self._options}

    def initialOffset(self) -> OffsetTree:
        """Where a new query starts. A restarted query uses its checkpoint instead."""
        self._reached = self._planner.starting()
        return tree_of(self._reached)

    def latestOffset(self) -> OffsetTree:  # type: ignore[override]
        """The end of the next micro-batch: the last stable offset of this moment."""
        return tree_of(self._planner.not_before(self._reached, self._planner.latest()))

    def partitions(self, start: OffsetTree, end: OffsetTree) -> list[InputPartition]:
        """The tasks of one micro-batch.

        Raises PlanError if the end is below the start. This happens to a query that changed from read_uncommitted,
        with a Spark that does not pass the start to `latestOffset`.
        """
        begin, stop = offsets_of(start), offsets_of(end)
        back = {tp for tp, offset in self._planner.not_before(begin, stop).items() if offset != stop[tp]}
        if back:
            names = ", ".join(map(str, sorted(back)))
            raise PlanError(
                f"{names}: the query has read beyond the last stable offset;"
                " restart it when the open transactions have ended"
            )
        self._reached = stop
        return [RangePartition(work) for work in self._planner.ranges(begin, stop)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one partition. Runs in a task."""
        return read_range(self._options, partition)

    def commit(self, end: OffsetTree) -> None:
        """Commit to the group of commitGroup. The query itself uses Spark's checkpoint."""
        if self._position is not None:
            self._position.commit(offsets_of(end))

    def stop(self) -> None:
        """Close the driver's connections."""
        self._source.close()
        self._brokers.close()


_NEED_LIMITS = {
    "maxOffsetsPerTrigger": "max_offsets_per_trigger",
    "minOffsetsPerTrigger": "min_offsets_per_trigger",
    "maxRecordsPerTrigger": "max_records_per_trigger",
    "maxBytesPerTrigger": "max_bytes_per_trigger",
}


def stream_reader(options: SourceOptions) -> UnlimitedStreamReader:
    """The reader for this version of Spark. Raises OptionError for options that need a later version."""
    try:
        from fencepost.spark_connector.source.limited_stream import StreamReader
    except ImportError:
        for name, field in _NEED_LIMITS.items():
            if getattr(options, field) is not None:
                raise OptionError(
                    f"option {name} needs Spark 4.2 or newer, which lets a Python source limit a micro-batch; "
                    f"this is {pyspark.__version__}"
                ) from None
        return UnlimitedStreamReader(options)
    return StreamReader(options)
