"""What Grafana's boards read: the names of metrics in PromQL, and the names that Strimzi's boards read.

`python -m tests.kit.boards FILE...` prints the panels of boards with their names, to bring STRIMZI up to date.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NO_NAMES = {
    *("sum", "count", "max", "min", "avg", "topk", "rate", "irate", "delta", "increase", "deriv", "bool", "or", "and"),
    *("histogram_quantile", "min_over_time", "predict_linear", "label_values", "query_result"),
}
_GROUPING = re.compile(r"\b(by|without)\s*\([^)]*\)")
_SELECTION = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def names_in(expression: str) -> set[str]:
    """The metrics that an expression of PromQL reads."""
    found = set(_NAME.findall(_GROUPING.sub("", _SELECTION.sub("", expression))))
    return {name for name in found - _NO_NAMES if not re.fullmatch(r"e\d+", name)}


def panels_of(board: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The title and the expressions of each panel; a board's variables are named `variable NAME`."""
    for panel in board.get("panels", []):
        expressions = [target["expr"] for target in panel.get("targets", []) if target.get("expr")]
        if expressions:
            yield panel["title"], expressions
        yield from panels_of(panel)
    for variable in board.get("templating", {}).get("list", []):
        query = variable.get("query")
        text = query if isinstance(query, str) else (query or {}).get("query", "")
        if variable.get("type") == "query":
            yield f"variable {variable['name']}", [text.rpartition(",")[0] + ")" if "label_values" in text else text]


# Of strimzi/strimzi-kafka-operator 8541da1e (22 August 2026). strimzi-kraft is left out: all its panels are about Raft
# and the JVM, and fencepost's metadata log has no quorum.
STRIMZI: dict[str, dict[str, list[str]]] = {
    "strimzi-kafka": {
        "Brokers Online": ["kafka_server_replicamanager_leadercount"],
        "Active Controllers": ["kafka_controller_kafkacontroller_activecontrollercount"],
        "Unclean Leader Election Rate": ["kafka_controller_controllerstats_uncleanleaderelections_total"],
        "Online Replicas": ["kafka_server_replicamanager_partitioncount"],
        "Under Replicated Partitions": ["kafka_server_replicamanager_underreplicatedpartitions"],
        "Partitions at minimum ISR": ["kafka_cluster_partition_atminisr"],
        "Partitions under minimum ISR": ["kafka_cluster_partition_underminisr"],
        "Offline Partitions Count": ["kafka_controller_kafkacontroller_offlinepartitionscount"],
        "Memory Usage": ["container_memory_usage_bytes"],
        "CPU Usage": ["container_cpu_usage_seconds_total"],
        "Available Disk Space": ["kubelet_volume_stats_available_bytes"],
        "Open File Descriptors": ["process_open_fds"],
        "JVM Memory Used": ["jvm_memory_used_bytes"],
        "JVM GC Time": ["jvm_gc_collection_seconds_sum"],
        "JVM GC Count": ["jvm_gc_collection_seconds_count"],
        "JVM Thread Count": ["jvm_threads_current"],
        "Total Incoming Byte Rate": ["kafka_server_brokertopicmetrics_bytesin_total"],
        "Total Outgoing Byte Rate": ["kafka_server_brokertopicmetrics_bytesout_total"],
        "Incoming Messages Rate": ["kafka_server_brokertopicmetrics_messagesin_total"],
        "Total Produce Request Rate": ["kafka_server_brokertopicmetrics_totalproducerequests_total"],
        "Byte Rate": [
            "kafka_server_brokertopicmetrics_bytesin_total",
            "kafka_server_brokertopicmetrics_bytesout_total",
        ],
        "Messages In Per Second": ["kafka_server_brokertopicmetrics_messagesin_total"],
        "Produce Request Rate": [
            "kafka_server_brokertopicmetrics_failedproducerequests_total",
            "kafka_server_brokertopicmetrics_totalproducerequests_total",
        ],
        "Fetch Request Rate": [
            "kafka_server_brokertopicmetrics_failedfetchrequests_total",
            "kafka_server_brokertopicmetrics_totalfetchrequests_total",
        ],
        "Network Processor Avg Idle Percent": ["kafka_network_socketserver_networkprocessoravgidle_percent"],
        "Request Handler Avg Idle Percent": ["kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"],
        "Disk Writes": ["kafka_server_kafkaserver_linux_disk_write_bytes"],
        "Disk Reads": ["kafka_server_kafkaserver_linux_disk_read_bytes"],
        "Connection Count per Listener": ["kafka_server_socket_server_metrics_connection_count"],
        "Log Size": ["kafka_log_log_size"],
        "variable kubernetes_namespace": ["kafka_server_replicamanager_leadercount"],
        "variable strimzi_cluster_name": ["kafka_server_replicamanager_leadercount"],
        "variable kafka_broker": ["kafka_server_replicamanager_leadercount"],
        "variable kafka_topic": ["kafka_cluster_partition_replicascount"],
        "variable kafka_partition": ["kafka_log_log_size"],
    },
    "strimzi-kafka-exporter": {
        "Topics": ["kafka_topic_partitions"],
        "Partitions": ["kafka_topic_partitions"],
        "Replicas": ["kafka_topic_partition_replicas"],
        "In Sync Replicas": ["kafka_topic_partition_in_sync_replica"],
        "Under Replicated Partitions": ["kafka_topic_partition_under_replicated_partition"],
        "Partitions at minimum ISR": ["kafka_cluster_partition_atminisr"],
        "Partitions under minimum ISR": ["kafka_cluster_partition_underminisr"],
        "Partitions not on preferred node": ["kafka_topic_partition_leader_is_preferred"],
        "Messages in per second": ["kafka_topic_partition_current_offset"],
        "Messages consumed per second": ["kafka_consumergroup_current_offset"],
        "Lag by  Consumer Group": ["kafka_consumergroup_lag"],
        "Consumer Group Offsets": ["kafka_consumergroup_current_offset"],
        "Consumer Group Lag": ["kafka_consumergroup_lag"],
        "Number of Partitions": ["kafka_topic_partitions"],
        "Latest Offsets": ["kafka_topic_partition_current_offset"],
        "Oldest Offsets": ["kafka_topic_partition_oldest_offset"],
        "variable kubernetes_namespace": ["kafka_broker_info"],
        "variable strimzi_cluster_name": ["kafka_broker_info"],
        "variable consumergroup": ["kafka_consumergroup_current_offset"],
        "variable topic": ["kafka_topic_partition_current_offset"],
    },
}
NOT_THE_BROKERS = {
    "container_memory_usage_bytes": "of Kubernetes",
    "container_cpu_usage_seconds_total": "of Kubernetes",
    "kubelet_volume_stats_available_bytes": "of Kubernetes",
    "jvm_memory_used_bytes": "there is no JVM; process_resident_memory_bytes is the memory",
    "jvm_gc_collection_seconds_sum": "there is no JVM; python_gc_collections_total counts Python's",
    "jvm_gc_collection_seconds_count": "there is no JVM; python_gc_collections_total counts Python's",
    "jvm_threads_current": "there is no JVM, and one thread does the work",
}
"""Names that these boards read and that no broker of fencepost has, each with the reason."""


def main() -> None:
    """Print the boards that are named."""
    for file in map(Path, sys.argv[1:]):
        for title, expressions in panels_of(json.loads(file.read_text(encoding="utf-8"))):
            print(f"{file.stem}: {title}: {sorted(set().union(*map(names_in, expressions)))}")


if __name__ == "__main__":
    main()
