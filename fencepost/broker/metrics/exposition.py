"""The broker's state as Prometheus metrics, collected for each scrape; names are those of Kafka dashboards."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from pathlib import Path

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from fencepost.broker.metrics.groups import count_groups, group_metrics, position_text
from fencepost.broker.metrics.pages import free_bytes
from fencepost.broker.metrics.partitions import METRICS, LogCounts, count_logs, partition_text, topic_text
from fencepost.broker.metrics.quotas import quota_text
from fencepost.broker.metrics.server import Page
from fencepost.broker.metrics.share import share_metrics, share_text
from fencepost.broker.metrics.transactions import transaction_metrics
from fencepost.broker.ports import Broker
from fencepost.coordinator.group.admin import Counted
from fencepost.protocol.registry import API_BY_KEY

_IO = Path("/proc/self/io")
LISTENER_LABELS = ("listener", "networkProcessor")
LISTENER_VALUES = ("PLAINTEXT", "0")


class BrokerCollector(Collector):
    """The families of a node whose rows no client can add to. What takes time was counted before, in steps."""

    def __init__(self, node: Broker) -> None:
        self._node = node
        self.logs = LogCounts()
        self.groups: Counter[Counted] = Counter()

    def describe(self) -> list[Metric]:
        """Nothing: otherwise the registry would collect once at registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families. An error in one part leaves out the rest of that part only."""
        for part in (
            self._cluster(),
            self._connections(),
            self._requests(),
            transaction_metrics(self._node, self.logs.producer_ids),
            group_metrics(self._node, self.groups),
            share_metrics(self._node),
            self._disk_and_loop(),
            self._cleaner(),
            self._node.place.metrics(self.logs.rows),
            _upkeep_metrics(self._node),
        ):
            with self._node.logs.upkeep.guard(METRICS):
                yield from part

    def _cluster(self) -> Iterator[Metric]:
        node = self._node
        topics = node.metadata.image.topics_by_name
        partitions = sum(topic.partitions for topic in topics.values())
        led, is_controller = sum(map(node.place.count_led, topics.values())), int(node.place.is_controller)
        offline = len(node.partitions.offline())
        for name, text, value in (
            ("kafka_server_replicamanager_leadercount", "Partitions led by this node", led),
            ("kafka_server_replicamanager_partitioncount", "Partitions held by this node", led),
            ("kafka_server_replicamanager_underreplicatedpartitions", "Partitions that lack replicas", 0),
            ("kafka_server_replicamanager_underminisrpartitioncount", "Partitions below min.insync.replicas", 0),
            ("kafka_server_replicamanager_offlinereplicacount", "Replicas that are offline", offline),
            ("kafka_server_replicamanager_produceridcount", "Producers with state on a partition", self.logs.producers),
            (
                "kafka_server_replicamanager_partitionswithlatetransactionscount",
                "Partitions whose last stable offset is held back by a late transaction",
                self.logs.late,
            ),
            ("kafka_controller_kafkacontroller_activecontrollercount", "1 on the active controller", is_controller),
            ("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader", offline),
            ("kafka_log_logmanager_offlinelogdirectorycount", "1 if any log is offline", int(offline > 0)),
            ("kafka_controller_kafkacontroller_globaltopiccount", "Topics", len(topics)),
            ("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions", partitions),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield CounterMetricFamily(
            "kafka_controller_controllerstats_uncleanleaderelections",
            "Leaders elected without all acknowledged records: never",
            value=0,
        )
        info = GaugeMetricFamily("kafka_broker_info", "A broker of the cluster", labels=("id",))
        info.add_metric((str(node.config.node_id),), 1)
        yield info

    def _connections(self) -> Iterator[Metric]:
        metrics = self._node.metrics
        gauge = GaugeMetricFamily(
            "kafka_server_socket_server_metrics_connection_count", "Open connections", labels=LISTENER_LABELS
        )
        gauge.add_metric(LISTENER_VALUES, metrics.connections_opened - metrics.connections_closed)
        yield gauge
        for name, text, value in (
            ("connection_creation", "Connections accepted", metrics.connections_opened),
            ("connection_close", "Connections closed", metrics.connections_closed),
            ("expired_connections_killed", "Idle connections closed", metrics.connections_expired),
        ):
            family = CounterMetricFamily(f"kafka_server_socket_server_metrics_{name}", text, labels=LISTENER_LABELS)
            family.add_metric(LISTENER_VALUES, value)
            yield family
        yield CounterMetricFamily(
            "fencepost_connections_refused",
            "Connections closed after an invalid request, or over max.connections",
            value=metrics.connections_refused,
        )
        yield CounterMetricFamily(
            "fencepost_connections_failed",
            "Connections closed after an internal error",
            value=metrics.connections_failed,
        )

    def _requests(self) -> Iterator[Metric]:
        metrics = self._node.metrics
        count = CounterMetricFamily("kafka_network_requestmetrics_requests", "Requests answered", labels=("request",))
        times = SummaryMetricFamily(
            "kafka_network_requestmetrics_totaltimems",
            "Time from a request's arrival to its answer",
            labels=("request",),
        )
        for key in sorted(metrics.requests):
            label = (API_BY_KEY[key].name,)
            count.add_metric(label, metrics.requests[key])
            times.add_metric(label, metrics.requests[key], metrics.request_seconds[key] * 1000)
        yield count
        yield times
        sessions, bean = self._node.fetch_sessions, "kafka_server_fetchsessioncache"
        yield GaugeMetricFamily(f"{bean}_numincrementalfetchsessions", "Fetch sessions (KIP-227)", value=len(sessions))
        yield GaugeMetricFamily(
            f"{bean}_numincrementalfetchpartitionscached", "Partitions of all fetch sessions", value=sessions.partitions
        )
        yield CounterMetricFamily(
            f"{bean}_incrementalfetchsessionevictions",
            "Fetch sessions that gave way to others",
            value=sessions.evictions,
        )

    def _cleaner(self) -> Iterator[Metric]:
        """The metrics of Kafka's LogCleanerManager and LogCleaner, under the names of its JMX exporter."""
        node, cleaner = self._node, self._node.cleaner
        stats, seconds, delay_ms = cleaner.last
        recopied = 100 * stats.written_bytes // stats.read_bytes if stats.read_bytes else 0
        for name, text, value in (
            ("manager_max_dirty_percent", "Dirty share of the dirtiest log", int(100 * cleaner.dirtiest_ratio)),
            (
                "manager_time_since_last_run_ms",
                "Time since logs were last looked at",
                node.clock.now_ms() - cleaner.looked_at_ms,
            ),
            ("_cleaner_recopy_percent", "Bytes the last compaction wrote, in percent of the bytes it read", recopied),
            ("_max_clean_time_secs", "How long the last compaction took", int(seconds)),
            ("_max_buffer_utilization_percent", "How full its key map was", int(100 * stats.map_utilization)),
            ("_max_compaction_delay_secs", "By how much max.compaction.lag.ms was overdue", delay_ms // 1000),
        ):
            yield GaugeMetricFamily(f"kafka_log_logcleaner{name}", text, value=value)
        for name, text, value in (
            ("uncleanable_partitions_count", "Partitions whose compaction failed", len(cleaner.uncleanable())),
            ("uncleanable_bytes", "Bytes of their logs", cleaner.uncleanable_bytes()),
        ):
            family = GaugeMetricFamily(f"kafka_log_logcleanermanager_{name}", text, labels=("logDirectory",))
            family.add_metric((node.logs.place,), value)
            yield family

    def _disk_and_loop(self) -> Iterator[Metric]:
        node = self._node
        fsyncs = SummaryMetricFamily("fencepost_fsync_seconds", "Rounds of fdatasync", labels=())
        fsyncs.add_metric((), count_value=node.flusher.rounds, sum_value=node.flusher.sync_seconds)
        yield fsyncs
        yield CounterMetricFamily(
            "fencepost_flushed_files", "Files flushed in these rounds", value=node.flusher.flushes
        )
        yield GaugeMetricFamily(
            "fencepost_loop_lag_seconds", "How late the event loop's last tick was", value=node.metrics.loop_lag_seconds
        )
        yield GaugeMetricFamily("fencepost_parked_fetches", "Fetches that wait", value=len(node.purgatory.parked))
        idle = 1 - node.metrics.loop_busy_share
        for name in (
            "network_socketserver_networkprocessoravgidle",
            "server_kafkarequesthandlerpool_requesthandleravgidle",
        ):
            yield GaugeMetricFamily(
                f"kafka_{name}_percent", "Share of time in which the event loop is idle", value=idle
            )
        for name, count in _disk_bytes().items():
            family = GaugeMetricFamily(
                f"kafka_server_kafkaserver_linux_disk_{name}", "Bytes of this process", value=count
            )
            yield family
        free = free_bytes(node.logs.place)
        if free is not None:
            yield GaugeMetricFamily("fencepost_disk_free_bytes", "Free bytes where the logs are", value=free)


def _disk_bytes() -> dict[str, int]:
    """What this process has read from disks and written to them; Kafka reads the same file. Empty without Linux."""
    try:
        lines = _IO.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    counts = dict(line.split(": ") for line in lines)
    return {name: int(counts[name]) for name in ("read_bytes", "write_bytes")}


class _Further(Collector):
    """Metrics beside those of the node."""

    def __init__(self, further: Callable[[], Iterator[Metric]]) -> None:
        self._further = further

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        return self._further()


def renderer(
    node: Broker | None, further: Callable[[], Iterator[Metric]] = lambda: iter(())
) -> Callable[[], Awaitable[Page]]:
    """The page for a scrape of this node, with its process's memory, CPU time and garbage collector.

    What grows with the numbers of topics, partitions, producers and groups is made in steps, between which clients are
    served. `further` are metrics beside those of the node.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(_Further(further))
    if node is None:

        async def render() -> Page:
            return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry)

        return render
    collector = BrokerCollector(node)
    registry.register(collector)

    async def render_node() -> Page:
        config = node.config
        upkeep, logs = node.logs.upkeep, node.logs.logs()
        with upkeep.guard(METRICS):
            collector.groups = await count_groups(node)
        collector.logs = await count_logs(logs, node.clock.now_ms(), config.transaction_max_timeout_ms, upkeep)
        pieces = [generate_latest(registry)]
        topics = {topic.name: topic.partitions for topic in node.metadata.image.topics_by_name.values()}
        for topic, count in node.shares.sessions.take_topic_fetches().items():
            if topic in topics:
                node.metrics.topic(topic).share_fetch_requests += count
        pieces += await topic_text({**node.metrics.topics, "": node.metrics.no_topic}, topics)
        pieces += await partition_text(logs, upkeep)
        most = config.metrics_group_offsets_max
        for part in (position_text(node, most), share_text(node, most), quota_text(node)):
            with upkeep.guard(METRICS):
                pieces += await part
        return HTTPStatus.OK, CONTENT_TYPE_LATEST, b"".join(pieces)

    return render_node


def _upkeep_metrics(node: Broker) -> Iterator[Metric]:
    """The failures by work, and the logs whose last run of some work failed."""
    count = CounterMetricFamily("fencepost_upkeep_failures", "Failures of background work", labels=("work",))
    for work, failures in sorted(node.logs.upkeep.counts.items()):
        count.add_metric((work,), failures)
    expiry = node.groups.runtime.failed_expiries + node.transactions.runtime.failed_expiries
    count.add_metric(("expiry",), expiry)
    yield count
    failing = GaugeMetricFamily(
        "fencepost_upkeep_failing",
        "1 for each partition whose last run of some background work failed",
        labels=("topic", "partition", "work"),
    )
    for log in node.logs.logs():
        for work in log.failed_upkeep:
            failing.add_metric((log.tp.topic, str(log.tp.partition), work), 1)
    yield failing
