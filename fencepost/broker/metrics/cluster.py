"""The metrics of a broker whose logs are in PostgreSQL and an object store."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from fencepost.broker.cluster.commit.writer import Writer
from fencepost.broker.cluster.growth.loops import Growth
from fencepost.broker.cluster.objects.object_store import ObjectCounters
from fencepost.broker.cluster.reading.byte_cache import CacheCounters
from fencepost.broker.cluster.serving.health import StoreHealth
from fencepost.coordinator.histogram import Histogram


def cluster_metrics(
    writer: Writer,
    cache: CacheCounters,
    growth: Growth,
    objects: ObjectCounters | None,
    *,
    active: bool,
    leader_epoch: int,
    brokers: int,
    followed: int,
    rows: int,
) -> Iterator[Metric]:
    """What one run of the broker counted; `objects` is None for the doubles of tests."""
    counters, merged = writer.counters, growth.counters
    yield from _gauges(
        ("active", "1 on the active broker, 0 on a standby", int(active)),
        ("leader_epoch", "The epoch of the active broker's slots", leader_epoch),
        ("brokers", "Brokers whose leases are current, this one included", brokers),
        ("followed_logs", "Logs of other brokers that consumers read here", followed),
        ("lease_age_seconds", "Since the last commit or renewal of the lease was sent", writer.idle_seconds),
        ("commits_waiting", "1 while commits wait for a store", int(writer.unavailable is not None)),
        ("rows", "Rows of the logs that this broker has open", rows),
        ("cache_bytes", "Records in the cache directory", cache.size_bytes),
    )
    yield from _counters(
        ("conflicts", "Commits that were refused because rows of other brokers came first", counters.conflicts),
        ("reconnects", "Connections to the database that replaced a broken one", counters.reconnects),
        ("cache_hits", "Reads of rows that were in the cache directory", cache.hits),
        ("cache_misses", "Reads of rows that had to wait for a store", cache.misses),
        ("cache_read_ahead", "Rows that were fetched before a reader wanted them", cache.ahead),
        ("merges", "Merges of rows, each in one log", merged.merges),
        ("merged_rows", "Rows that merging or compaction replaced", merged.merged_rows),
        ("merged_bytes", "Bytes that merging or compaction read and wrote again", merged.merged_bytes),
        ("objects_deleted", "Objects that garbage collection deleted", growth.collector.deleted + merged.swept_objects),
        ("cache_evictions", "Segments that were deleted from the cache directory", cache.evictions),
    )
    yield _histogram("commit", "Round trip of a commit to the database", counters.commits)
    if objects is not None:
        yield _histogram("object_put", "Time to put an object, retries included", objects.put_times)
        yield _histogram("object_get", "Time to get a range of an object, retries included", objects.get_times)
        yield from _counters(
            ("object_put_bytes", "Bytes of objects that were put", objects.put_bytes),
            ("object_get_bytes", "Bytes of ranges that were read", objects.get_bytes),
            ("object_failures", "Requests to the object store that failed after all retries", objects.failures),
        )


def health_metrics(health: StoreHealth) -> Iterator[Metric]:
    """Whether the stores are there, and how large the tables are."""
    there = GaugeMetricFamily("fencepost_store_available", "1 if the store answered the last probe", labels=("store",))
    there.add_metric(("database",), int(health.database is None))
    there.add_metric(("objects",), int(health.objects is None))
    yield there
    rows = GaugeMetricFamily("fencepost_store_table_rows", "Rows of a table, as last estimated", labels=("table",))
    size = GaugeMetricFamily("fencepost_store_table_bytes", "Bytes of a table with its indexes", labels=("table",))
    for table in health.tables:
        rows.add_metric((table.name,), table.rows)
        size.add_metric((table.name,), table.size_bytes)
    yield rows
    yield size


def _gauges(*metrics: tuple[str, str, float]) -> Iterable[Metric]:
    return (GaugeMetricFamily(f"fencepost_cluster_{name}", text, value=value) for name, text, value in metrics)


def _counters(*metrics: tuple[str, str, float]) -> Iterable[Metric]:
    return (CounterMetricFamily(f"fencepost_cluster_{name}", text, value=value) for name, text, value in metrics)


def _histogram(name: str, text: str, times: Histogram) -> Metric:
    family = HistogramMetricFamily(f"fencepost_cluster_{name}_seconds", text)
    family.add_metric((), times.buckets(), times.sum_seconds)
    return family
