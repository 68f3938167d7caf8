"""The streaming side for Spark 4.2 and newer, which knows limits, AvailableNow and what is left behind a query."""

from __future__ import annotations

import time

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from fencepost.spark_connector.offsets import Offsets, OffsetTree, offsets_of, tree_of
from fencepost.spark_connector.source.options import SourceOptions
from fencepost.spark_connector.source.scan import Limit
from fencepost.spark_connector.source.stream import UnlimitedStreamReader

LAST_STABLE = "{} (last stable)"
"""How `reportLatestOffset` calls a topic's last stable offsets: as no topic can be called."""


class StreamReader(UnlimitedStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, of the size that the options ask for."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._available_now: Offsets | None = None
        self._waiting_since: float | None = None
        self._counted: tuple[Offsets, Offsets, bool] | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say. Spark cannot pass several limits on: the others are minded by latestOffset."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: OffsetTree, limit: ReadLimit) -> OffsetTree:  # type: ignore[override]
        """The end of the next micro-batch, fixed now at the last stable offset or below it."""
        begin = offsets_of(start)
        if self._position is not None:
            # Spark tells the last micro-batch of a query to nobody by `commit`, but asks here what comes after it.
            self._position.commit(begin)
        end = self._available_now if self._available_now is not None else self._planner.latest()
        end = self._planner.not_before(begin, end)
        if isinstance(limit, ReadAllAvailable):
            return tree_of(end)
        if self._available_now is None and self._too_little(begin, end):
            return start
        return tree_of(self._planner.limited(begin, end, self._limit(limit)))

    def reportLatestOffset(self) -> OffsetTree:
        """The high watermarks, and where transactions are open the last stable offsets beside them.

        In a query's progress: what lies between its end offset and the last stable one can be read at once, what lies
        between that and the high watermark is not decided yet.
        """
        written = self._planner.high_watermarks()
        stable = tree_of(self._planner.undecided(written))
        return tree_of(written) | {LAST_STABLE.format(topic): stable[topic] for topic in stable}

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember where everything ends now; the query stops there, whatever grows or is added meanwhile."""
        self._available_now = self._planner.latest()

    def _limit(self, limit: ReadLimit) -> Limit:
        options = self._options
        return Limit(
            limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_offsets_per_trigger,
            limit.max_bytes if isinstance(limit, ReadMaxBytes) else options.max_bytes_per_trigger,
        )

    def _too_little(self, begin: Offsets, end: Offsets) -> bool:
        """Whether minOffsetsPerTrigger says to wait, which it does for maxTriggerDelay at most."""
        smallest = self._options.min_offsets_per_trigger
        if smallest is None:
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        overdue = (now - self._waiting_since) * 1000 >= self._options.max_trigger_delay_ms
        if not overdue and not self._enough(begin, end, smallest):
            return True
        self._waiting_since = now
        return False

    def _enough(self, begin: Offsets, end: Offsets, smallest: int) -> bool:
        # Spark asks again every few milliseconds; the same stretch of the log holds the same.
        if self._counted is None or self._counted[:2] != (begin, end):
            self._counted = (begin, end, self._planner.visible(begin, end, smallest) >= smallest)
        return self._counted[2]
