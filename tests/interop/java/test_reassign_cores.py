"""`kafka-reassign-partitions.sh` moves partitions between the cores of a broker (KIP-455)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.sync import Client
from tests.interop.java.kafka_jvm import KafkaJvm, ToolFailed
from tests.kit.broker_process import BrokerProcess
from tests.kit.cores_broker import Cores
from tests.kit.cores_moves import FIRST_ID
from tests.kit.waiting import until

TOOL = "ReassignPartitionsCommand"
CANCELLED = (
    "Successfully cancelled",
    "None of the specified partition reassignments are active",
    "No partition reassignment is in progress",
)
MANY = 200
"""Partitions that take longer to move than a command of Kafka takes to look."""


@pytest.fixture
def cores(tmp_path: Path) -> Iterator[Cores]:
    with BrokerProcess(tmp_path / "work", data_dir=tmp_path / "data", cores=3) as broker:
        yield Cores(broker)


def test_a_whole_cycle_of_kafka_reassign_partitions(kafka: KafkaJvm, cores: Cores, tmp_path: Path) -> None:
    """--generate, --execute, --list, --verify and --cancel of ReassignPartitionsCommand, unmodified."""
    address = cores.broker.address
    leaders = cores.create("moving", 3)
    with Client(address) as kafka_client, kafka_client.producer() as producer:
        for number in range(30):
            producer.send("moving", b"%d" % number, partition=number % 3)

    def tool(*words: str) -> str:
        return kafka.tool(TOOL, "--bootstrap-server", address, *words)

    def written(name: str, to: list[int], topic: str = "moving") -> str:
        places = [
            {"topic": topic, "partition": number, "replicas": [FIRST_ID + core], "log_dirs": ["any"]}
            for number, core in enumerate(to)
        ]
        file = tmp_path / name
        file.write_text(json.dumps({"version": 1, "partitions": places}))
        return str(file)

    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "moving"}]}))
    generated = tool("--topics-to-move-json-file", str(topics), "--broker-list", str(FIRST_ID), "--generate")
    assert f'"replicas":[{FIRST_ID}]' in generated.split("Proposed", 1)[1]

    target = [(core + 1) % 3 for core in leaders]
    there = ("--reassignment-json-file", written("there.json", target))
    assert "Successfully started partition reassignments" in tool(*there, "--execute")
    printed = until(lambda: tool(*there, "--verify"), lambda said: said.count("is completed") == 3)
    assert "still in progress" not in printed
    assert cores.leaders("moving") == target
    assert "No partition reassignments found." in tool("--list")

    many = cores.create("many", MANY)
    away = ("--reassignment-json-file", written("away.json", [(core + 1) % 3 for core in many], "many"))
    assert "Successfully started partition reassignments" in tool(*away, "--execute")
    printed = tool(*away, "--verify")
    assert printed.count("is completed") + printed.count("is still in progress") == MANY
    try:
        cancelled = tool(*away, "--cancel")
    except ToolFailed as failed:  # some have ended between its two requests
        cancelled = str(failed)
    assert any(said in cancelled for said in CANCELLED), cancelled
    assert "No partition reassignments found." in tool("--list")
    assert all(now in (was, (was + 1) % 3) for now, was in zip(cores.leaders("many"), many, strict=True))

    with pytest.raises(ToolFailed, match="7"):
        tool("--reassignment-json-file", written("nowhere.json", [7 - FIRST_ID] * 3), "--execute")
    with Client(address) as kafka_client, kafka_client.consumer("moving") as consumer:
        found = [record.value for batch in consumer.read_to_end() for record in batch]
    assert sorted(found) == sorted(b"%d" % number for number in range(30))
