"""Prometheus metrics of share groups (KIP-932): Kafka's own beans, and what became of each group's records."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.metrics.counters import ShareGroupCounters
from fencepost.broker.metrics.tables import Family, labels, table_text
from fencepost.broker.ports import Broker
from fencepost.broker.share.led import LedPartition
from fencepost.broker.share.values import AckType
from fencepost.protocol.topics import SHARE_STATE_TOPIC, TopicPartition

SESSIONS = "kafka_server_sharesessioncache"
IN_FLIGHT = (
    Family("kafka_server_sharepartitionmetrics_inflightmessagecount", "Offsets of a share partition in flight"),
)
LEFT_OUT = Family("fencepost_share_partitions_left_out", "Share partitions above metrics.group.offsets.max, not shown")
RECORDS = tuple(
    Family(f"fencepost_share_group_{name}_records_total", text, "counter")
    for name, text in (
        ("acquired", "Records that members of a share group acquired"),
        ("accepted", "Records that they accepted"),
        ("released", "Records that they released, or whose member's session ended"),
        ("rejected", "Records that they rejected"),
        ("expired", "Records whose locks ended"),
        ("archived", "Records that were rejected, or delivered as often as the limit allows"),
    )
)


def share_metrics(node: Broker) -> Iterator[Metric]:
    """The families about all share groups together."""
    sessions, led = node.shares.sessions, node.shares.led()
    yield GaugeMetricFamily(f"{SESSIONS}_sharesessionscount", "Share sessions", value=len(sessions))
    yield GaugeMetricFamily(
        f"{SESSIONS}_sharepartitionscount", "Partitions of all share sessions", value=sessions.partition_count
    )
    yield CounterMetricFamily(
        f"{SESSIONS}_sharesessionevictions", "Share sessions that ended with their connections", value=sessions.evicted
    )
    yield GaugeMetricFamily("fencepost_share_partitions", "Share partitions in use", value=len(led))
    family = CounterMetricFamily(
        "kafka_server_sharegroupmetrics_recordacknowledgements",
        "Records of share groups, by the type of their acknowledgement",
        labels=("ackType",),
    )
    for kind in AckType:
        family.add_metric((kind.name.capitalize(),), node.metrics.acknowledged[kind])
    yield family
    yield from _coordinator_metrics(node)


def _coordinator_metrics(node: Broker) -> Iterator[Metric]:
    """The families about the share coordinator (Kafka's ShareCoordinatorMetrics)."""
    states = node.share_states
    tallies = states.tallies
    yield GaugeMetricFamily("fencepost_share_states", "Share partitions whose states are kept here", value=len(states))
    yield GaugeMetricFamily(
        "fencepost_share_state_records",
        "Records of __share_group_state that are not pruned",
        value=sum(log.log_end_offset - log.log_start_offset for log in _state_logs(node)),
    )
    yield CounterMetricFamily(
        "kafka_server_share_coordinator_metrics_write",
        "Changes of share partitions' states that were stored",
        value=tallies.writes,
    )
    yield CounterMetricFamily(
        "fencepost_share_state_snapshots", "Snapshots of share partitions' states", value=tallies.snapshots
    )
    times = HistogramMetricFamily(
        "fencepost_share_state_write_seconds", "From a request to store changes of states until they are durable"
    )
    times.add_metric((), tallies.write_times.buckets(), tallies.write_times.sum_seconds)
    yield times


def _state_logs(node: Broker) -> Iterator[PartitionLog]:
    for shard in node.share_states.runtime.shards():
        log = node.partition(TopicPartition(SHARE_STATE_TOPIC, shard.partition))
        if log is not None:
            yield log


async def share_text(node: Broker, most: int) -> list[bytes]:
    """What became of the records of each group, and the records in flight of at most `most` share partitions."""

    def counters(entry: tuple[str, ShareGroupCounters]) -> tuple[str, tuple[int, ...]]:
        name, counts = entry
        return labels(group=name), (
            counts.acquired,
            counts.accepted,
            counts.released,
            counts.rejected,
            counts.expired,
            counts.archived,
        )

    def in_flight(led: LedPartition) -> tuple[str, tuple[int]]:
        of = labels(group=led.key.group_id, partition=str(led.tp.partition), topic=led.tp.topic)
        return of, (led.core.in_flight,)

    found = node.shares.led() if most else []
    groups = list(node.metrics.share_groups.items()) if most else []
    left_out = await table_text([LEFT_OUT], [max(len(found) - most, 0)], lambda number: ("", [number]))
    return left_out + await table_text(IN_FLIGHT, found[:most], in_flight) + await table_text(RECORDS, groups, counters)
