"""Kafka's commands as an operator types them: topics, configs, features, cluster, offsets, records, log dirs, quorum.

What they ask is what Kafka does: with FENCEPOST_INTEROP_BOOTSTRAP they pass against Apache Kafka 4.3.1, too.
Rows D1, D2, D3 and D8.
"""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol.record_batch import build_batch
from tests.interop.java.kafka_jvm import KafkaJvm, ToolFailed
from tests.kit.leaders import Leaders
from tests.kit.wire import NOW_MS

WAIT_S = 100.0
Command = Callable[..., str]


@pytest.fixture
def command(kafka: KafkaJvm, bootstrap: str) -> Command:
    """Run a command against the broker; what it prints."""

    def run(name: str, *words: str) -> str:
        return kafka.tool(name, "--bootstrap-server", bootstrap, *words)

    return run


@pytest.fixture
def topic(command: Command, name: str) -> str:
    """A topic of two partitions, made by kafka-topics."""
    settings = ("--config", "retention.ms=1000000", "--config", "cleanup.policy=compact,delete")
    words = ("--create", "--topic", name, "--partitions", "2", "--replication-factor", "1", *settings)
    assert f"Created topic {name}." in command("TopicCommand", *words)
    until(lambda: command("TopicCommand", "--describe", "--topic", name), "PartitionCount: 2")
    return name


def until(ask: Callable[[], str], *wanted: str, gone: str = "") -> str:
    """What a command prints, once it says all this, and not what is gone: Kafka's brokers hear of changes later."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            printed = ask()
            if all(one in printed for one in wanted) and not (gone and gone in printed):
                return printed
        except ToolFailed as failed:
            printed = str(failed)
        assert time.monotonic() < deadline, printed
        time.sleep(0.05)


def refused(command: Command, *words: str) -> str:
    """What a command prints that fails."""
    with pytest.raises(ToolFailed) as failed:
        command(*words)
    return str(failed.value)


def produce(bootstrap: str, topic: str, count: int) -> None:
    """So many records for the first partition, one batch each."""
    with Leaders(bootstrap) as leaders:
        for number in range(count):
            leaders.produce(topic, build_batch([(NOW_MS + number, b"key", b"value", ())]))


def written(path: Path, value: Any) -> str:
    """A file for those commands that read one."""
    path.write_text(json.dumps(value))
    return str(path)


def test_kafka_topics_d1(command: Command, topic: str, name: str) -> None:
    """Create, list, describe, grow, delete, and what is refused in which words."""
    described = command("TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 2" in described
    assert re.search(r"Leader: (\d)\tReplicas: \1\tIsr: \1\b", described)
    assert "retention.ms=1000000" in described
    assert topic in command("TopicCommand", "--list").split()
    assert topic in command("TopicCommand", "--describe", "--topics-with-overrides")
    for filtered in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert topic not in command("TopicCommand", "--describe", filtered)
    again = refused(command, "TopicCommand", "--create", "--topic", topic)
    assert f"Topic '{topic}' already exists." in again
    command("TopicCommand", "--create", "--topic", topic, "--if-not-exists")
    assert "one or more characters other than" in refused(command, "TopicCommand", "--create", "--topic", "bad/name")
    factor = ("--create", "--topic", f"{name}-3", "--replication-factor", "3")
    assert "Unable to replicate the partition 3 time(s)" in refused(command, "TopicCommand", *factor)
    command("TopicCommand", "--alter", "--topic", topic, "--partitions", "3")
    until(lambda: command("TopicCommand", "--describe", "--topic", topic), "PartitionCount: 3")
    fewer = refused(command, "TopicCommand", "--alter", "--topic", topic, "--partitions", "2")
    assert "would not be an increase" in fewer
    by_hand = f"{name}-by-hand"
    command("TopicCommand", "--create", "--topic", by_hand, "--replica-assignment", "1,1")
    until(lambda: command("TopicCommand", "--describe", "--topic", by_hand), "PartitionCount: 2")
    topic_id = described.split("TopicId: ")[1].split()[0]
    assert topic in command("TopicCommand", "--describe", "--topic-id", topic_id)
    command("TopicCommand", "--delete", "--topic", topic)
    until(lambda: command("TopicCommand", "--list"), by_hand, gone=f"{topic}\n")
    assert "does not exist as expected" in refused(command, "TopicCommand", "--delete", "--topic", topic)


def test_kafka_configs_of_topics_d2(command: Command, topic: str) -> None:
    of = ("--entity-type", "topics", "--entity-name", topic)
    change = ("--add-config", "retention.ms=77,cleanup.policy=[delete]", "--delete-config", "cleanup.policy")
    command("ConfigCommand", "--alter", *of, *change[:2])
    shown = until(lambda: command("ConfigCommand", "--describe", *of), "retention.ms=77")
    assert "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=delete, DEFAULT_CONFIG:log.cleanup.policy=delete}" in shown
    command("ConfigCommand", "--alter", *of, *change[2:])
    until(lambda: command("ConfigCommand", "--describe", *of), "retention.ms=77", gone="cleanup.policy")
    every = command("ConfigCommand", "--describe", *of, "--all")
    assert "segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.bytes=1073741824}" in every
    unknown = refused(command, "ConfigCommand", "--alter", *of, "--add-config", "no.such=1")
    assert "InvalidConfigurationException: Unknown topic config name: no.such" in unknown
    assert "Invalid value soon" in refused(
        command, "ConfigCommand", "--alter", *of, "--add-config", "retention.ms=soon"
    )
    absent = command("ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", f"{topic}-none")
    assert "doesn't exist and doesn't have dynamic config" in absent


def test_kafka_configs_of_brokers_d2(command: Command) -> None:
    one, all_of_them = (
        ("--entity-type", "brokers", "--entity-name", "1"),
        ("--entity-type", "brokers", "--entity-default"),
    )
    command("ConfigCommand", "--alter", *all_of_them, "--add-config", "log.cleaner.backoff.ms=15001")
    command("ConfigCommand", "--alter", *one, "--add-config", "log.cleaner.backoff.ms=15002,num.io.threads=9")
    shown = until(lambda: command("ConfigCommand", "--describe", *one), "backoff.ms=15002", "num.io.threads=9")
    synonyms = (
        "DYNAMIC_BROKER_CONFIG:log.cleaner.backoff.ms=15002, DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.backoff.ms"
    )
    assert f"synonyms={{{synonyms}=15001, DEFAULT_CONFIG:log.cleaner.backoff.ms=15000}}" in shown
    until(lambda: command("ConfigCommand", "--describe", *all_of_them), "log.cleaner.backoff.ms=15001")
    for words in (all_of_them, one):
        command("ConfigCommand", "--alter", *words, "--delete-config", "log.cleaner.backoff.ms")
    command("ConfigCommand", "--alter", *one, "--delete-config", "num.io.threads")
    until(lambda: command("ConfigCommand", "--describe", "--entity-type", "brokers"), gone="15002")
    fixed = refused(command, "ConfigCommand", "--alter", *one, "--add-config", "node.id=2")
    assert "Cannot update these configs dynamically: [node.id]" in fixed
    assert "log.retention.hours=168" in command("ConfigCommand", "--describe", *one, "--all")


def test_kafka_configs_of_groups_client_metrics_and_loggers_d2(command: Command, name: str) -> None:
    for kind, told, setting, value in (
        ("groups", "group", "consumer.session.timeout.ms", "50000"),
        ("client-metrics", "client-metric", "interval.ms", "1000"),
        ("broker-loggers", "broker-logger", "root", "INFO"),
    ):
        of = ("--entity-type", kind, "--entity-name", "1" if kind == "broker-loggers" else name)
        command("ConfigCommand", "--alter", *of, "--add-config", f"{setting}={value}")
        until(
            lambda of=of: command("ConfigCommand", "--describe", *of), f"for {told} {of[-1]} are", f"{setting}={value}"
        )
        if kind != "broker-loggers":
            until(lambda kind=kind: command("ConfigCommand", "--describe", "--entity-type", kind), name)
            command("ConfigCommand", "--alter", *of, "--delete-config", setting)


def test_kafka_features_m(command: Command) -> None:
    """KIP-584, KIP-1022; only tried, so that others are not disturbed."""
    described = command("FeatureCommand", "describe")
    assert "Feature: metadata.version" in described
    levels = [line.split() for line in described.splitlines() if line.startswith("Feature: transaction.version")]
    assert [(words[3], words[5], words[7]) for words in levels] == [("0", "2", "2")]
    down = command("FeatureCommand", "downgrade", "--feature", "transaction.version=1", "--dry-run")
    assert "transaction.version can be downgraded to 1." in down
    too_far = refused(command, "FeatureCommand", "upgrade", "--feature", "transaction.version=9", "--dry-run")
    assert "Invalid update version 9 for feature transaction.version" in too_far
    assert "metadata.version=25" in command("FeatureCommand", "version-mapping", "--release-version", "4.0")


def test_kafka_cluster_d3(kafka: KafkaJvm, bootstrap: str) -> None:
    """Its options come after what it shall do."""
    assert "Cluster ID: " in kafka.tool("ClusterTool", "cluster-id", "--bootstrap-server", bootstrap)
    listed = kafka.tool("ClusterTool", "list-endpoints", "--bootstrap-server", bootstrap, "--include-fenced-brokers")
    head, *rows = (line.split() for line in listed.splitlines() if line.strip())
    assert head == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    with pytest.raises(ToolFailed, match="Broker ID 7 is not currently registered"):
        kafka.tool("ClusterTool", "unregister", "--bootstrap-server", bootstrap, "--id", "7")
    host, _, port = bootstrap.rpartition(":")
    assert ["1", host, port, "null", "unfenced", "broker"] in rows


def test_kafka_get_offsets_and_kafka_delete_records_d8(
    command: Command, topic: str, bootstrap: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, 5)
    assert until(lambda: command("GetOffsetShell", "--topic", topic), f"{topic}:0:5", f"{topic}:1:0")
    assert f"{topic}:0:0" in command("GetOffsetShell", "--topic", topic, "--time", "earliest")
    assert f"{topic}:0:4" in command("GetOffsetShell", "--topic-partitions", f"{topic}:0", "--time", "max-timestamp")
    assert "__consumer_offsets" not in command("GetOffsetShell", "--exclude-internal-topics")
    assert "Could not match any topic-partitions" in refused(command, "GetOffsetShell", "--topic", f"{topic}-none")

    def delete(partition: int, offset: int) -> str:
        places = [{"topic": topic, "partition": partition, "offset": offset}]
        file = written(tmp_path / "offsets.json", {"version": 1, "partitions": places})
        return command("DeleteRecordsCommand", "--offset-json-file", file)

    assert f"partition: {topic}-0\tlow_watermark: 3" in delete(0, 3)
    assert f"partition: {topic}-0\tlow_watermark: 5" in delete(0, -1)
    assert "OffsetOutOfRangeException" in delete(0, 99)
    assert f"{topic}:0:5" in command("GetOffsetShell", "--topic", topic, "--time", "earliest")


def test_kafka_log_dirs_d8(command: Command, topic: str, bootstrap: str) -> None:
    produce(bootstrap, topic, 2)

    def described(*words: str) -> dict[str, Any]:
        printed = command("LogDirsCommand", "--describe", *words)
        [line] = [line for line in printed.splitlines() if line.startswith("{")]
        found: dict[str, Any] = json.loads(line)
        return found

    directories = {broker["broker"]: broker["logDirs"] for broker in described("--topic-list", topic)["brokers"]}
    assert all(directory["error"] is None for [directory] in directories.values())
    sizes = {one["partition"]: one["size"] for [directory] in directories.values() for one in directory["partitions"]}
    assert sizes.keys() == {f"{topic}-0", f"{topic}-1"}
    assert sizes[f"{topic}-0"] > 0 == sizes[f"{topic}-1"]
    here = {one["partition"] for one in directories[1][0]["partitions"]}
    [directory] = described("--broker-list", "1")["brokers"][0]["logDirs"]
    assert here <= {one["partition"] for one in directory["partitions"]}


def test_kafka_metadata_quorum(command: Command) -> None:
    printed = command("MetadataQuorumCommand", "describe", "--status")
    status = dict(line.split(":", 1) for line in printed.splitlines() if ":" in line)
    assert status["LeaderId"].strip() == "1"
    assert int(status["HighWatermark"]) > 0
    assert json.loads(status["CurrentVoters"])[0]["id"] == 1
    assert json.loads(status["CurrentObservers"]) == []
    table = command("MetadataQuorumCommand", "describe", "--replication").splitlines()
    [leader] = [line.split() for line in table if line.split() and line.split()[-1] == "Leader"]
    assert (leader[0], leader[3]) == ("1", "0")


def test_kafka_leader_election_and_reassign_partitions_d8(command: Command, topic: str, tmp_path: Path) -> None:
    elect = ("LeaderElectionCommand", "--election-type", "preferred")
    assert f"Valid replica already elected for partitions {topic}-0" in command(
        *elect, "--topic", topic, "--partition", "0"
    )
    assert "could not be elected" in refused(command, *elect, "--topic", f"{topic}-none", "--partition", "0")
    command(*elect, "--all-topic-partitions")
    described = command("TopicCommand", "--describe", "--topic", topic)
    leader = int(described.split("Partition: 0\tLeader: ")[1].split()[0])
    places = [{"topic": topic, "partition": 0, "replicas": [leader], "log_dirs": ["any"]}]
    file = written(tmp_path / "moves.json", {"version": 1, "partitions": places})
    move = ("ReassignPartitionsCommand", "--reassignment-json-file", file)
    assert f"Successfully started partition reassignment for {topic}-0" in command(*move, "--execute")
    assert f"Reassignment of partition {topic}-0 is completed." in until(
        lambda: command(*move, "--verify"), "completed"
    )
    assert "No partition reassignments found." in command("ReassignPartitionsCommand", "--list")
    elsewhere = [{**places[0], "replicas": [7]}]
    file = written(tmp_path / "elsewhere.json", {"version": 1, "partitions": elsewhere})
    assert "7" in refused(command, "ReassignPartitionsCommand", "--reassignment-json-file", file, "--execute")


def test_kafka_broker_api_versions(command: Command) -> None:
    """Every version that is told is within Kafka's own client's."""
    printed = command("BrokerApiVersionsCommand")
    for line in ("Produce(0): 0 to 13", "Fetch(1): 4 to 18", "Metadata(3): 0 to 13", "DescribeQuorum(55): 0 to 2"):
        assert line in printed
