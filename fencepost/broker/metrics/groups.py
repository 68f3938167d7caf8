"""Prometheus metrics of groups: Kafka's own beans, kafka-exporter's offsets and lag, and groups by state."""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric

from fencepost.broker.ports import HasGroups, HasPartitions
from fencepost.protocol.topics import TopicPartition

BEAN = "kafka_coordinator_group_groupmetadatamanager"
COUNTS = "kafka_server_group_coordinator_metrics"
CONSUMER_STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
CLASSIC_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")


class _Broker(HasGroups, HasPartitions, Protocol):
    """The groups, and the logs for their lag."""


def group_metrics(node: _Broker) -> Iterator[Metric]:
    """All families about groups, collected for each scrape."""
    groups = node.groups
    states = groups.admin.groups_by_state()
    by_state = GaugeMetricFamily("fencepost_groups", "Groups by state", labels=("state",))
    for state, count in states.items():
        by_state.add_metric((state,), count)
    yield by_state
    by_protocol = GaugeMetricFamily(f"{COUNTS}_group_count", "Groups by protocol", labels=("protocol",))
    for protocol, count in groups.admin.groups_by_protocol().items():
        by_protocol.add_metric((protocol,), count)
    yield by_protocol
    consumers = GaugeMetricFamily(
        f"{COUNTS}_consumer_group_count", "Groups of the consumer protocol by state", labels=("state",)
    )
    found = groups.admin.consumer_groups_by_state()
    for state in CONSUMER_STATES:
        consumers.add_metric((state,), found.get(state, 0))
    yield consumers
    yield GaugeMetricFamily(f"{BEAN}_numgroups", "Groups", value=sum(states.values()))
    yield GaugeMetricFamily(f"{BEAN}_numoffsets", "Committed offsets", value=groups.admin.offset_count)
    for state in CLASSIC_STATES:
        yield GaugeMetricFamily(
            f"{BEAN}_numgroups{state.lower()}", f"Groups that are {state}", value=states.get(state, 0)
        )
    tallies = groups.tallies
    for name, text, value in (
        ("offset_commit", "Offsets committed, including those in transactions", tallies.committed_offsets),
        ("offset_expiration", "Offsets expired after their retention", tallies.expired_offsets),
        ("offset_deletion", "Offsets deleted by OffsetDelete", tallies.deleted_offsets),
        ("group_completed_rebalance", "Rebalances that ended in a stable group", tallies.completed_rebalances),
    ):
        yield GaugeMetricFamily(f"{COUNTS}_{name}_count", f"{text}, since the start", value=value)
    yield from _positions(node)


def _positions(node: _Broker) -> Iterator[Metric]:
    """Committed offsets and lag. Lag counts up to the LSO, because a read_committed reader cannot read beyond it."""
    labels = ("consumergroup", "topic", "partition")
    current = GaugeMetricFamily("kafka_consumergroup_current_offset", "Committed offset", labels=labels)
    lag = GaugeMetricFamily("kafka_consumergroup_lag", "Offsets between it and the last stable one", labels=labels)
    for entry in node.groups.admin.committed_offsets():
        label = (entry.group_id, entry.topic, str(entry.partition))
        current.add_metric(label, entry.offset)
        log = node.partition(TopicPartition(entry.topic, entry.partition))
        if log is not None:
            lag.add_metric(label, max(0, log.last_stable_offset - entry.offset))
    yield current
    yield lag
