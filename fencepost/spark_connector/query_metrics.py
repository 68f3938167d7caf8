"""Prometheus metrics of a driver's streaming queries, made from the progress that Spark reports."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge
from pyspark.sql.streaming.listener import StreamingQueryListener

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.offsets import LAST_STABLE, Offsets, Position, offsets_of

log = logging.getLogger(__name__)


class Lag(NamedTuple):
    """What a query has not read of a partition, in offsets."""

    behind: int
    """Up to the high watermark."""
    held_back: int
    """Of these, behind the last stable offset: no reader of committed records can have them yet."""


def lag_of(end_json: str | None, latest_json: str | None) -> dict[TopicPartition, Lag]:
    """The lag of each partition, from the `endOffset` and `latestOffset` of a source; empty for other sources."""
    try:
        read = Position.of(json.loads(end_json or "")).offsets
        latest = json.loads(latest_json or "")
        suffix = LAST_STABLE.format("")
        high = offsets_of({name: value for name, value in latest.items() if not name.endswith(suffix)})
        stable: Offsets = offsets_of(
            {name.removesuffix(suffix): value for name, value in latest.items() if name.endswith(suffix)}
        )
    except (ValueError, TypeError, AttributeError):
        return {}
    known = high.keys() & read.keys()
    return {tp: Lag(max(0, high[tp] - read[tp]), high[tp] - stable.get(tp, high[tp])) for tp in sorted(known)}


class QueryMetrics(StreamingQueryListener):
    """Metrics of all queries of a session: `spark.streams.addListener(QueryMetrics())`.

    `prometheus_client.start_http_server(PORT)` serves them. The label `query` is the query's name, or its id. A lag
    needs Spark 4.2 or newer, which asks a Python source for the latest offsets.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__()
        query, partition = ["query"], ["query", "topic", "partition"]
        self._records = Counter("fencepost_spark_records", "Records that the query has read", query, registry=registry)
        self._batch = Gauge("fencepost_spark_batch", "The last micro-batch that is done", query, registry=registry)
        self._seconds = Gauge(
            "fencepost_spark_batch_seconds", "How long that micro-batch took", query, registry=registry
        )
        self._behind = Gauge(
            "fencepost_spark_lag_offsets", "Offsets up to the high watermark", partition, registry=registry
        )
        self._held_back = Gauge(
            "fencepost_spark_held_back_offsets", "Offsets behind open transactions", partition, registry=registry
        )
        self._names: dict[str, str] = {}
        self._partitions: dict[str, set[TopicPartition]] = {}

    def onQueryStarted(self, event: Any) -> None:
        self._names[str(event.runId)] = event.name or str(event.id)

    def onQueryProgress(self, event: Any) -> None:
        self.show(event.progress)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:
        """Remove the lag of the query: it is not measured any more."""
        name = self._names.pop(str(event.runId), str(event.id))
        for tp in self._partitions.pop(name, ()):
            self._forget(name, tp)
        if event.exception:
            log.error("query %s has failed: %s", name, str(event.exception).splitlines()[0])

    def show(self, progress: Any) -> None:
        """Set the metrics from one report of progress."""
        name = progress.name or str(progress.id)
        lags: dict[TopicPartition, Lag] = {}
        for source in progress.sources:
            lags |= lag_of(source.endOffset, source.latestOffset)
        for tp in self._partitions.get(name, set()) - lags.keys():
            self._forget(name, tp)
        self._partitions[name] = set(lags)
        for tp, lag in lags.items():
            labels = (name, tp.topic, str(tp.partition))
            self._behind.labels(*labels).set(lag.behind)
            self._held_back.labels(*labels).set(lag.held_back)
        self._batch.labels(name).set(progress.batchId)
        if not progress.numInputRows:
            return
        seconds = _seconds(progress.durationMs)
        self._records.labels(name).inc(progress.numInputRows)
        self._seconds.labels(name).set(seconds)
        behind, held_back = (sum(numbers) for numbers in zip(*lags.values(), strict=True)) if lags else (0, 0)
        log.info(
            "query %s: micro-batch %d, %d records in %.1f s, %d offsets behind, %d of them in open transactions",
            *(name, progress.batchId, progress.numInputRows, seconds, behind, held_back),
        )

    def _forget(self, name: str, tp: TopicPartition) -> None:
        for gauge in (self._behind, self._held_back):
            gauge.remove(name, tp.topic, str(tp.partition))


def _seconds(durations_ms: Mapping[str, int]) -> float:
    return durations_ms.get("triggerExecution", 0) / 1000
