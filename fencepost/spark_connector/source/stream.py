"""The stream reader for every Spark 4, and the choice of the reader for this Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from fencepost.spark_connector.network.cluster import Cluster
from fencepost.spark_connector.offsets import LATEST, Position, PositionTree
from fencepost.spark_connector.option_values import OptionError
from fencepost.spark_connector.source.group import GroupPosition
from fencepost.spark_connector.source.options import SourceOptions
from fencepost.spark_connector.source.planned_anew import planned_anew
from fencepost.spark_connector.source.planner import PlanError, Planner
from fencepost.spark_connector.source.sources import open_source
from fencepost.spark_connector.source.task import RangePartition, read_range
from fencepost.spark_connector.worker.delayed_ack import QuickAckOnUnpickle


class UnlimitedStreamReader(QuickAckOnUnpickle, DataSourceStreamReader):
    """Plans micro-batches on the driver. Offsets are those of the next records to read: {"topic": {"0": 23}}.

    Spark calls `initialOffset` several times for one first micro-batch, and again at each restart until that batch is
    committed. So the answer stays the same, and the end of the first batch says where the batch begins.

    Spark before 4.2 cannot limit a Python source. A micro-batch then holds everything up to the last stable offset. It
    also asks for the end of the first batch before its start, so that a restarted query looks like a new one.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._source = open_source(options)
        self._planner = Planner(options, self._source)
        self._initial: PositionTree | None = None
        self._no_start: PlanError | None = None
        """Why a new query cannot start."""
        self._reached: PositionTree = {}
        group = options.commit_group
        self._brokers = Cluster(options.connection)
        """Of the group; it connects when it is needed."""
        self._position = GroupPosition(self._brokers, group) if group is not None else None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy only to call `read`. Connections stay on the driver.
        return {"_options": self._options}

    def initialOffset(self) -> PositionTree:
        """Where a new query starts. A restarted query uses its checkpoint instead.

        A PlanError waits for `partitions`: a first micro-batch that is run again does not need this answer.
        """
        if self._initial is None:
            try:
                start = self._planner.position(self._planner.starting())
                self._initial = start._replace(first=start.offsets).tree
            except PlanError as error:
                self._no_start, self._initial = error, {}
        return self._initial

    @planned_anew
    def latestOffset(self) -> PositionTree:  # type: ignore[override]
        """The end of the next micro-batch: the last stable offset of this moment.

        Each end holds the start of a new query, as long as that is the same after a restart: equal ends are no news.
        With startingOffsets=latest the first answer is this start itself, so that none needs to hold it.
        """
        is_first = not self._reached
        if is_first:
            self._reached = self.initialOffset()
        start, latest = Position.of(self._reached), self._planner.latest()
        is_latest = self._options.starting.mark == LATEST
        if is_first and is_latest and self._no_start is None:
            latest = start._replace(first=None)
        begin = self._planner.begin(start, latest)
        ends = self._planner.not_before(begin, latest.offsets)
        end = self._planner.with_missing(start, latest._replace(offsets=ends))
        first = begin if self._reached == self._initial else start.first
        return end._replace(first=None if is_latest else first).tree

    @planned_anew
    def partitions(self, start: PositionTree, end: PositionTree) -> list[InputPartition]:
        """The tasks of one micro-batch.

        Raises PlanError if the end is below the start. This happens to a query that changed from read_uncommitted,
        with a Spark that does not pass the start to `latestOffset`.
        """
        begin, stop = Position.of(start), Position.of(end)
        if start == self._initial:
            begin = self._first_begin(begin, stop)
        work = self._planner.ranges(begin, stop)
        self._reached = end
        return [RangePartition(one) for one in work]

    def _first_begin(self, start: Position, end: Position) -> Position:
        """Where the first micro-batch begins, which may have been planned before a restart. Raises PlanError."""
        if end.first is not None:
            return Position(end.first)
        if self._no_start is not None:
            raise self._no_start
        offsets = {tp: min(offset, end.offsets[tp]) for tp, offset in start.offsets.items() if tp in end.offsets}
        return start._replace(offsets=offsets)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, partition)

    def commit(self, end: PositionTree) -> None:
        """Commit to the group of commitGroup. The query itself uses Spark's checkpoint."""
        if self._position is not None:
            self._position.commit(Position.of(end).offsets)

    def stop(self) -> None:
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
