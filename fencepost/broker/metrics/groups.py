"""Prometheus metrics of groups: Kafka's own beans, kafka-exporter's offsets and lag, and groups by state."""

from collections import Counter
from collections.abc import Iterator

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fencepost.broker.metrics.tables import STEP, Family, labels, table_text
from fencepost.broker.ports import Broker
from fencepost.coordinator.group.admin import Counted
from fencepost.coordinator.group.shards import GroupOffset
from fencepost.coordinator.group.view import CLASSIC, CONSUMER, SHARE
from fencepost.protocol.topics import TopicPartition

BEAN = "kafka_coordinator_group_groupmetadatamanager"
COUNTS = "kafka_server_group_coordinator_metrics"
STATES = {CONSUMER: ("Empty", "Assigning", "Reconciling", "Stable", "Dead"), SHARE: ("Empty", "Stable", "Dead")}
"""The states of groups in which the broker assigns, by type."""
CLASSIC_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")


POSITIONS = (
    Family("kafka_consumergroup_current_offset", "Committed offset"),
    Family("kafka_consumergroup_lag", "Offsets between it and the last stable one"),
)
LEFT_OUT = Family("fencepost_group_offsets_left_out", "Committed offsets above metrics.group.offsets.max, not shown")


async def count_groups(node: Broker) -> Counter[Counted]:
    """How many groups there are of each type and state, counted in steps."""
    counts: Counter[Counted] = Counter()
    for number, counted in enumerate(node.groups.admin.census(), 1):
        counts[counted] += 1
        if number % STEP == 0:
            await trio.lowlevel.checkpoint()
    return counts


def group_metrics(node: Broker, counts: Counter[Counted]) -> Iterator[Metric]:
    """The families about all groups together."""
    groups = node.groups
    states, protocols = Counter[str](), Counter[str]()
    for (kind, state), count in counts.items():
        protocols[kind] += count
        if kind == CLASSIC:
            states[state] += count
    by_state = GaugeMetricFamily("fencepost_groups", "Groups by state", labels=("state",))
    for state, count in states.items():
        by_state.add_metric((state,), count)
    yield by_state
    by_protocol = GaugeMetricFamily(f"{COUNTS}_group_count", "Groups by protocol", labels=("protocol",))
    for protocol, count in protocols.items():
        by_protocol.add_metric((protocol,), count)
    yield by_protocol
    for kind, all_states in STATES.items():
        name = f"{COUNTS}_{kind}_group_count"
        family = GaugeMetricFamily(name, f"Groups of the {kind} protocol by state", labels=("state",))
        for state in all_states:
            family.add_metric((state,), counts[Counted(kind, state)])
        yield family
    yield GaugeMetricFamily(f"{BEAN}_numgroups", "Groups", value=sum(states.values()))
    yield GaugeMetricFamily(f"{BEAN}_numoffsets", "Committed offsets", value=groups.admin.offset_count)
    for state in CLASSIC_STATES:
        yield GaugeMetricFamily(f"{BEAN}_numgroups{state.lower()}", f"Groups that are {state}", value=states[state])
    for name, text, value in (
        ("dead_letters", "Records of share groups that were appended to dead-letter topics", node.metrics.dead_letters),
        ("dead_letters_failed", "Records that were archived without one", node.metrics.dead_letters_failed),
    ):
        yield CounterMetricFamily(f"fencepost_share_{name}", text, value=value)
    tallies = groups.tallies
    for name, text, value in (
        ("offset_commit", "Offsets committed, including those in transactions", tallies.committed_offsets),
        ("offset_expiration", "Offsets expired after their retention", tallies.expired_offsets),
        ("offset_deletion", "Offsets deleted by OffsetDelete", tallies.deleted_offsets),
        ("group_completed_rebalance", "Rebalances that ended in a stable group", tallies.completed_rebalances),
    ):
        yield GaugeMetricFamily(f"{COUNTS}_{name}_count", f"{text}, since the start", value=value)


async def position_text(node: Broker, most: int) -> list[bytes]:
    """Committed offsets and lag of at most `most` positions. Any client can make groups, so they are bounded.

    Lag counts up to the LSO, because a read_committed reader cannot read beyond it.
    """
    shown: list[GroupOffset] = []
    left_out = 0
    for number, entry in enumerate(node.groups.admin.committed_offsets() if most else (), 1):
        if len(shown) < most:
            shown.append(entry)
        else:
            left_out += 1
        if number % STEP == 0:
            await trio.lowlevel.checkpoint()

    def row(entry: GroupOffset) -> tuple[str, tuple[int, int | None]]:
        log = node.partition(TopicPartition(entry.topic, entry.partition))
        lag = None if log is None else max(0, log.last_stable_offset - entry.offset)
        of = labels(consumergroup=entry.group_id, topic=entry.topic, partition=str(entry.partition))
        return of, (entry.offset, lag)

    count = await table_text([LEFT_OUT], [left_out], lambda number: ("", [number]))
    return count + await table_text(POSITIONS, shown, row)
