"""The metrics of each partition, as text: ten thousand rows are quick, and the event loop goes on between them.

prometheus_client makes an object of each row. For 1,000 partitions that kept all clients waiting for 80 ms a scrape
(`python -m bench.scrape` compares both).
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from fencepost.broker.log.partition import PartitionLog

FAMILIES = (
    ("kafka_log_log_size", "Bytes of a partition's log"),
    ("kafka_log_log_logstartoffset", "First offset of a partition"),
    ("kafka_log_log_logendoffset", "Offset that a partition's next record will get"),
    ("kafka_log_log_numlogsegments", "Segments of a partition's log"),
    ("kafka_topic_partition_current_offset", "High watermark of a partition"),
    ("kafka_topic_partition_oldest_offset", "First offset of a partition"),
    (
        "kafka_cluster_partition_laststableoffsetlag",
        "Offsets between a partition's last stable offset and its high watermark",
    ),
    ("kafka_cluster_partition_replicascount", "Replicas of a partition"),
    ("kafka_topic_partition_replicas", "Replicas of a partition"),
    ("kafka_topic_partition_in_sync_replica", "Replicas of a partition in sync: 0 if its log is offline"),
    ("kafka_topic_partition_under_replicated_partition", "1 if a partition has fewer replicas in sync than replicas"),
    ("kafka_topic_partition_leader_is_preferred", "1 if a partition's leader is its first replica"),
    ("kafka_cluster_partition_atminisr", "1 if a partition has as many replicas in sync as it must have"),
    ("kafka_cluster_partition_underminisr", "1 if a partition has fewer replicas in sync than it must have"),
)
"""Names and meanings. A partition has one replica here, which leads it, so it must have one in sync (Kafka bounds
min.insync.replicas by the number of replicas)."""
LOGS_AT_ONCE = 200


async def partition_text(logs: Collection["PartitionLog"]) -> bytes:
    """All families of these logs in Prometheus' text format. A topic's name needs no escapes."""
    labels: list[str] = []
    rows: list[tuple[int, ...]] = []
    for number, log in enumerate(list(logs), 1):
        labels.append(f'{{partition="{log.tp.partition}",topic="{log.tp.topic}"}}')
        rows.append(_values(log))
        if number % LOGS_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    parts = []
    for column, (name, text) in enumerate(FAMILIES):
        parts.append(f"# HELP {name} {text}\n# TYPE {name} gauge\n")
        parts += [f"{name}{label} {row[column]}\n" for label, row in zip(labels, rows, strict=True)]
        await trio.lowlevel.checkpoint()
    return "".join(parts).encode()


def _values(log: "PartitionLog") -> tuple[int, ...]:
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
