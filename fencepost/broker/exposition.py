"""The broker's state in Prometheus' words, gathered when somebody asks; names are those that Kafka dashboards know."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from fencepost.protocol.registry import API_BY_KEY

if TYPE_CHECKING:
    from fencepost.broker.log.partition import PartitionLog
    from fencepost.broker.metrics import TopicCounters
    from fencepost.broker.node import Node

TOPIC_COUNTERS = {
    "messagesin": ("messages_in", "Records appended"),
    "bytesin": ("bytes_in", "Bytes of batches appended"),
    "bytesout": ("bytes_out", "Bytes of batches fetched"),
    "totalproducerequests": ("produce_requests", "Partitions written to by Produce requests"),
    "totalfetchrequests": ("fetch_requests", "Partitions read by Fetch requests"),
    "failedproducerequests": ("failed_produce_requests", "Partitions whose batch was refused"),
    "failedfetchrequests": ("failed_fetch_requests", "Partitions whose fetch was refused"),
}
LISTENER_LABELS = ("listener", "networkProcessor")
LISTENER_VALUES = ("PLAINTEXT", "0")


class BrokerCollector(Collector):
    """Walks over a node's counters, logs and coordinators at scrape time."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    def describe(self) -> list[Metric]:
        """Nothing: a registry would otherwise collect once when this is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._topics()
        yield from self._cluster()
        yield from self._connections()
        yield from self._requests()
        yield from self._partitions()
        yield from self._transactions()
        yield from self._groups()
        yield from self._disk_and_loop()

    def _topics(self) -> Iterator[Metric]:
        metrics = self._node.metrics
        rows: list[tuple[str, TopicCounters]] = [*metrics.topics.items(), ("", metrics.no_topic)]
        for name, (attribute, text) in TOPIC_COUNTERS.items():
            family = CounterMetricFamily(f"kafka_server_brokertopicmetrics_{name}", text, labels=("topic",))
            for topic, counters in rows:
                family.add_metric((topic,), getattr(counters, attribute))
            yield family

    def _cluster(self) -> Iterator[Metric]:
        node = self._node
        topics = node.metadata.image.topics_by_name
        partitions = sum(topic.partitions for topic in topics.values())
        producers = sum(len(log.producer_states()) for log in node.logs.partitions())
        for name, text, value in (
            ("kafka_server_replicamanager_leadercount", "Partitions led by this node", partitions),
            ("kafka_server_replicamanager_partitioncount", "Partitions held by this node", partitions),
            ("kafka_server_replicamanager_underreplicatedpartitions", "Partitions that lack replicas", 0),
            ("kafka_server_replicamanager_underminisrpartitioncount", "Partitions below min.insync.replicas", 0),
            ("kafka_server_replicamanager_offlinereplicacount", "Replicas that are offline", 0),
            ("kafka_server_replicamanager_produceridcount", "Producers that partitions remember", producers),
            ("kafka_controller_kafkacontroller_activecontrollercount", "1 on the active controller", 1),
            ("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader", 0),
            ("kafka_controller_kafkacontroller_globaltopiccount", "Topics", len(topics)),
            ("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions", partitions),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        per_topic = GaugeMetricFamily("kafka_topic_partitions", "Partitions of a topic", labels=("topic",))
        for topic in topics.values():
            per_topic.add_metric((topic.name,), topic.partitions)
        yield per_topic

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
            ("expired_connections_killed", "Connections closed for silence", metrics.connections_expired),
        ):
            family = CounterMetricFamily(f"kafka_server_socket_server_metrics_{name}", text, labels=LISTENER_LABELS)
            family.add_metric(LISTENER_VALUES, value)
            yield family
        yield CounterMetricFamily(
            "fencepost_connections_refused", "Connections closed for what they sent", value=metrics.connections_refused
        )
        yield CounterMetricFamily(
            "fencepost_connections_failed", "Connections closed by a fault of ours", value=metrics.connections_failed
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

    def _partitions(self) -> Iterator[Metric]:
        labels = ("topic", "partition")
        families = {
            name: GaugeMetricFamily(name, text, labels=labels)
            for name, text in (
                ("kafka_log_log_size", "Bytes of a partition's log"),
                ("kafka_log_log_logstartoffset", "First offset of a partition"),
                ("kafka_log_log_logendoffset", "Offset that a partition's next record will get"),
                ("kafka_log_log_numlogsegments", "Segments of a partition's log"),
                ("kafka_topic_partition_current_offset", "High watermark of a partition"),
                ("kafka_topic_partition_oldest_offset", "First offset of a partition"),
                (
                    "fencepost_partition_lso_lag",
                    "Offsets between a partition's last stable offset and its high watermark",
                ),
            )
        }
        for log in self._node.logs.partitions():
            label = (log.tp.topic, str(log.tp.partition))
            for family, value in zip(families.values(), _log_values(log), strict=True):
                family.add_metric(label, value)
        yield from families.values()
