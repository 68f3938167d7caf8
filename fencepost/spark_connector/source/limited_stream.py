"""The stream reader for Spark 4.2 and newer, which supports limits, AvailableNow and a report of the latest offset."""

from __future__ import annotations

import math
import time

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from fencepost.spark_connector.offsets import LAST_STABLE, Offsets, OffsetTree, Position, PositionTree, tree_of
from fencepost.spark_connector.source.options import SourceOptions
from fencepost.spark_connector.source.planned_anew import planned_anew
from fencepost.spark_connector.source.scan import Limit
from fencepost.spark_connector.source.stream import UnlimitedStreamReader


class StreamReader(UnlimitedStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, within the limits of the options."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._available_now: Position | None = None
        self._last_trigger = -math.inf

    def getDefaultReadLimit(self) -> ReadLimit:
        """One of the options' limits. A Python source can name only one; `latestOffset` applies all of them."""
        options = self._options
        for rows in (options.max_offsets_per_trigger, options.max_records_per_trigger):
            if rows is not None:
                return ReadMaxRows(rows)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @planned_anew
    def latestOffset(self, start: PositionTree, limit: ReadLimit) -> PositionTree:  # type: ignore[override]
        """The end of the next micro-batch: at most the last stable offset of this moment.

        Raises PlanError if a new query cannot start.
        """
        if self._no_start is not None and not start:
            raise self._no_start
        before = Position.of(start)
        if self._position is not None:
            # Spark does not call `commit` for the last micro-batch of a query, but asks here for the one after it.
            self._position.commit(before.offsets)
        latest = self._latest()
        begin = self._planner.begin(before, latest)
        end = self._planner.not_before(begin, latest.offsets)
        if isinstance(limit, ReadAllAvailable):
            return self._end_after(start, begin, latest._replace(offsets=end))
        if self._available_now is None and self._must_wait(begin, end):
            return start
        options = self._options
        if options.max_offsets_per_trigger is not None:
            end = self._planner.rate_limited(begin, end, options.max_offsets_per_trigger)
        visible = Limit(options.max_records_per_trigger, options.max_bytes_per_trigger)
        return self._end_after(start, begin, latest._replace(offsets=self._planner.limited(begin, end, visible)))

    def _latest(self) -> Position:
        """The end for this query: that of `prepareForTriggerAvailableNow`, but for topics that were created again."""
        latest = self._planner.latest()
        if self._available_now is not None:
            again = self._available_now.created_again(latest.topic_ids)
            bound = {tp: end for tp, end in self._available_now.offsets.items() if tp.topic not in again}
            ends = {tp: bound.get(tp, end) for tp, end in latest.offsets.items() if tp in self._available_now.offsets}
            latest = self._available_now = self._planner.position(ends)
        return latest

    def _end_after(self, start: PositionTree, begin: Offsets, end: Position) -> PositionTree:
        """The end of a micro-batch that begins at `start`; `start` itself if there is nothing to read.

        Spark runs a first micro-batch without records, too.
        """
        before = Position.of(start)
        end = self._planner.with_missing(before, end)
        if before.is_initial:
            return end._replace(first=begin).tree
        return start if end == before._replace(first=None) else end.tree

    @planned_anew
    def reportLatestOffset(self) -> OffsetTree:
        """The high watermarks, and the last stable offsets of partitions with open transactions.

        A query's progress shows both. Records below the last stable offset can be read at once. The transactions of
        records between it and the high watermark are still open.
        """
        high_watermarks = self._planner.high_watermarks()
        stable = tree_of(self._planner.stable_offsets_behind(high_watermarks))
        return tree_of(high_watermarks) | {LAST_STABLE.format(topic): stable[topic] for topic in stable}

    @planned_anew
    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the current ends. The query stops there, even if partitions grow or are added."""
        self._available_now = self._planner.latest()

    def _must_wait(self, begin: Offsets, end: Offsets) -> bool:
        """Whether minOffsetsPerTrigger requires to wait. As in Spark's Kafka source the first trigger never waits."""
        smallest = self._options.min_offsets_per_trigger
        if smallest is None:
            return False
        now = time.monotonic()
        overdue = (now - self._last_trigger) * 1000 >= self._options.max_trigger_delay_ms
        if not overdue and self._planner.backlog(begin, end) < smallest:
            return True
        self._last_trigger = now
        return False
