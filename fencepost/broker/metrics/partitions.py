"""The metrics of each partition and topic, and the counts over all partitions."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

import trio

from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.upkeep_failures import UpkeepFailures
from fencepost.broker.metrics.counters import TopicCounters
from fencepost.broker.metrics.tables import STEP, Family, labels, table_text

FAMILIES = (
    Family("kafka_log_log_size", "Bytes of a partition's log"),
    Family("kafka_log_log_logstartoffset", "First offset of a partition"),
    Family("kafka_log_log_logendoffset", "Offset that a partition's next record will get"),
    Family("kafka_log_log_numlogsegments", "Segments of a partition's log"),
    Family("kafka_topic_partition_current_offset", "High watermark of a partition"),
    Family("kafka_topic_partition_oldest_offset", "First offset of a partition"),
    Family(
        "kafka_cluster_partition_laststableoffsetlag",
        "Offsets between a partition's last stable offset and its high watermark",
    ),
    Family("kafka_cluster_partition_replicascount", "Replicas of a partition"),
    Family("kafka_topic_partition_replicas", "Replicas of a partition"),
    Family("kafka_topic_partition_in_sync_replica", "Replicas of a partition in sync: 0 if its log is offline"),
    Family(
        "kafka_topic_partition_under_replicated_partition", "1 if a partition has fewer replicas in sync than replicas"
    ),
    Family("kafka_topic_partition_leader_is_preferred", "1 if a partition's leader is its first replica"),
    Family("kafka_cluster_partition_atminisr", "1 if a partition has as many replicas in sync as it must have"),
    Family("kafka_cluster_partition_underminisr", "1 if a partition has fewer replicas in sync than it must have"),
)
"""Names and meanings. A partition has one replica here, which leads it, so it must have one in sync (Kafka bounds
min.insync.replicas by the number of replicas)."""
TOPIC_FAMILIES = tuple(
    Family(f"kafka_server_brokertopicmetrics_{name}_total", text, "counter")
    for name, text in (
        ("messagesin", "Records appended"),
        ("bytesin", "Bytes of batches appended"),
        ("bytesout", "Bytes of batches fetched"),
        ("totalproducerequests", "Partitions written to by Produce requests"),
        ("totalfetchrequests", "Partitions read by Fetch requests"),
        ("failedproducerequests", "Partitions whose batch was rejected"),
        ("failedfetchrequests", "Partitions whose fetch failed"),
        ("totalsharefetchrequests", "ShareFetch requests that read the topic"),
        ("failedsharefetchrequests", "Those in which a partition failed"),
        ("totalshareacknowledgementrequests", "Requests that acknowledge records of the topic for a share group"),
        ("failedshareacknowledgementrequests", "Those in which a partition's acknowledgements were refused"),
    )
)
METRICS = "metrics"
LATE_AFTER_MS = 5 * 60 * 1000
"""As in Kafka: a transaction is late if it is open this long after the longest allowed timeout (T10)."""


async def partition_text(logs: Collection[PartitionLog], upkeep: UpkeepFailures) -> list[bytes]:
    """All families of these logs in Prometheus' text format.

    A log whose values cannot be read is left out, and noted in `upkeep`.
    """
    return await table_text(FAMILIES, list(logs), partial(_row, upkeep))


async def topic_text(counters: Mapping[str, TopicCounters], partitions: Mapping[str, int]) -> list[bytes]:
    """The counters of each topic, and how many partitions each has. The name "" is that of requests for no topic."""
    counted = await table_text(TOPIC_FAMILIES, list(counters.items()), _topic_row)
    sizes = Family("kafka_topic_partitions", "Partitions of a topic")
    return counted + await table_text([sizes], list(partitions.items()), lambda one: (labels(topic=one[0]), one[1:]))


class LogCounts(NamedTuple):
    producers: int = 0
    """Producers with state, counted once for each partition."""
    producer_ids: int = 0
    """Distinct producer ids among them."""
    late: int = 0
    """Partitions that a late transaction holds back."""
    rows: int = 0
    """Segments, or rows in a cluster's database."""


async def count_logs(
    logs: Collection[PartitionLog], now_ms: int, timeout_max_ms: int, upkeep: UpkeepFailures
) -> LogCounts:
    """Count in steps, because a log may have thousands of producers. A log that fails is noted in `upkeep`."""
    producers = late = rows = seen = 0
    distinct: set[int] = set()
    for log in list(logs):
        found: list[int] = []
        with upkeep.guard(METRICS, log):
            found += [entry.producer_id for entry in log.producers.entries()]
            distinct.update(found)
            producers += len(found)
            late += has_late_transaction(log, now_ms, timeout_max_ms)
            rows += len(log.segments)
        seen += 1 + len(found)
        if seen >= STEP:
            seen = 0
            await trio.lowlevel.checkpoint()
    return LogCounts(producers, len(distinct), late, rows)


def has_late_transaction(log: PartitionLog, now_ms: int, timeout_max_ms: int) -> bool:
    """Whether the transaction that holds the LSO must be hanging, by its idle time (rows T10, T20).

    It counts like Kafka's PartitionsWithLateTransactionsCount: by the newest timestamp of the producer's batches.
    """
    oldest = next(log.producers.open_transactions(), None)
    if oldest is None or oldest.last_timestamp_ms < 0:
        return False
    return now_ms - oldest.last_timestamp_ms > timeout_max_ms + LATE_AFTER_MS


def _topic_row(item: tuple[str, TopicCounters]) -> tuple[str, tuple[int, ...]]:
    name, counters = item
    return labels(topic=name), (
        counters.messages_in,
        counters.bytes_in,
        counters.bytes_out,
        counters.produce_requests,
        counters.fetch_requests,
        counters.failed_produce_requests,
        counters.failed_fetch_requests,
        counters.share_fetch_requests,
        counters.failed_share_fetch_requests,
        counters.share_acknowledgements,
        counters.failed_share_acknowledgements,
    )


def _row(upkeep: UpkeepFailures, log: PartitionLog) -> tuple[str, tuple[int | None, ...]]:
    values: tuple[int | None, ...] = (None,) * len(FAMILIES)
    with upkeep.guard(METRICS, log):
        values = _values(log)
    return labels(partition=str(log.tp.partition), topic=log.tp.topic), values


def _values(log: PartitionLog) -> tuple[int, ...]:
    """The values of a log, in the order of FAMILIES."""
    start_offset, high_watermark = log.log_start_offset, log.high_watermark
    in_sync = 0 if log.offline else 1
    return (
        log.segments.size_bytes,
        start_offset,
        log.log_end_offset,
        len(log.segments),
        high_watermark,
        start_offset,
        high_watermark - log.last_stable_offset,
        1,
        1,
        in_sync,
        1 - in_sync,
        1,
        in_sync,
        1 - in_sync,
    )
