"""Clients with different rights ask the same questions; what is kept of each answer.

    python -m tests.golden.rights_scenarios > tests/golden/rights_answers.json

starts an Apache Kafka with its StandardAuthorizer and takes its answers. All clients are User:ANONYMOUS. They differ
by the address that they connect from, and the rules name addresses: so no login is needed.
"""

import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.golden.group_scenarios import message, plain
from tests.kit.wire import ConnectionEnded, Wire, batch_of

WAIT_S = 100.0
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""The first client makes the rules; from then on there are rules for every resource."""
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
LITERAL, PREFIXED, ALLOW = 3, 4, 3
ALL, CREATE, ALTER, DESCRIBE, IDEMPOTENT_WRITE = 2, 5, 7, 8, 12
EVERY = [(TOPIC, "*", LITERAL), (GROUP, "*", LITERAL), (TRANSACTIONAL_ID, "*", LITERAL)]
MINE = [(TOPIC, "mine", PREFIXED), (GROUP, "mine", PREFIXED), (TRANSACTIONAL_ID, "mine", PREFIXED)]
ON_CLUSTER = (CLUSTER, "kafka-cluster", LITERAL)
RULES: dict[str, list[tuple[int, tuple[int, str, int]]]] = {
    "all": [(ALL, one) for one in (*EVERY, ON_CLUSTER)],
    "none": [],
    "mine": [(ALL, one) for one in MINE],
    "describer": [(DESCRIBE, one) for one in (*EVERY, ON_CLUSTER)],
    "creator": [(CREATE, ON_CLUSTER), (ALTER, ON_CLUSTER), (IDEMPOTENT_WRITE, ON_CLUSTER)],
}
"""What each client may do, as operation and resource."""
HOSTS = {name: f"127.0.0.{number}" for number, name in enumerate(RULES, 1)}
CLIENTS = ("none", "mine", "describer", "creator", "all")
"""In this order: the last one may change everything."""
KEPT = {
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "group_id",
    "transactional_id",
    "key",
    "index",
    "partition",
    "partition_index",
    "partition_id",
    "partition_error_code",
    "resource_name",
    "resource_type",
    "user",
    "producer_id",
}
"""The fields that say what an answer is about. They, error codes and authorized operations are kept as they are."""

ONLY_WHETHER = {"configs", "listeners"}
"""Lists of which only counts whether anything is there."""
LEFT_OUT = {
    "brokers",
    "eligible_leader_replicas",
    "isr_nodes",
    "last_known_elr",
    "node_endpoints",
    "offline_replicas",
    "pending",
    "replica_nodes",
    "synonyms",
}
"""Lists that have nothing to do with rights, or are ours."""
NO_ID = bytes(16)


class Case(NamedTuple):
    """One question. `ask` makes the request from the version and the stage."""

    name: str
    api_key: int
    versions: tuple[int, ...]
    ask: Callable[[int, "Stage"], Any]
    clients: tuple[str, ...] = CLIENTS


class Stage:
    """One run against one broker: its topics, and a connection for each client."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._wires: dict[str, Wire] = {}
        self.ids: dict[str, bytes] = {}
        """The ids of topics, by name."""
        self.client = "all"

    def call(self, api_key: int, version: int, request: Any) -> Any:
        """Ask as the present client. Raises ConnectionEnded."""
        try:
            return self.wire(self.client).call(api_key, version, request)
        except ConnectionEnded:
            self._wires.pop(self.client).close()
            raise

    def wire(self, client: str) -> Wire:
        """The connection of a client."""
        if client not in self._wires:
            sock = socket.create_connection(self._address, WAIT_S, source_address=(HOSTS[client], 0))
            self._wires[client] = Wire(sock, client_id="rights")
        return self._wires[client]

    def until(self, api_key: int, version: int, enough: Callable[[Any], bool], request: Any) -> Any:
        """Ask until the answer is as it will be."""
        deadline = time.monotonic() + WAIT_S
        while not enough(answer := self.call(api_key, version, request)):
            assert time.monotonic() < deadline, plain(answer)
            time.sleep(0.05)
        return answer

    def close(self) -> None:
        """Hang up."""
        for wire in self._wires.values():
            wire.close()

    def prepare(self) -> None:
        """Make the rules, the topics, two groups with offsets, and two open transactions."""
        self._make_rules()
        names = [
            "mine",
            "theirs",
            *(
                f"{whose}-{what}-{one}"
                for whose in ("mine", "theirs")
                for what in ("gone1", "gone5", "gone6", "id6", "more0", "more3")
                for one in CLIENTS
            ),
        ]
        made = [message(19, "CreatableTopic", name=name, num_partitions=1, replication_factor=1) for name in names]
        self.call(19, 7, message(19, "CreateTopicsRequest", topics=made, timeout_ms=60_000))
        asked = message(3, "MetadataRequest", topics=[message(3, "MetadataRequestTopic", name=name) for name in names])
        found = self.until(3, 12, lambda answer: all(_is_led(topic) for topic in answer.topics), asked)
        self.ids = {topic.name: topic.topic_id for topic in found.topics}
        for name in ("mine", "theirs"):
            self._fill(name)

    def _make_rules(self) -> None:
        creations = [
            message(
                30,
                "AclCreation",
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=pattern,
                principal="User:ANONYMOUS",
                host=HOSTS[client],
                operation=operation,
                permission_type=ALLOW,
            )
            for client, rules in RULES.items()
            for operation, (kind, name, pattern) in rules
        ]
        answer = self.call(30, 3, message(30, "CreateAclsRequest", creations=creations))
        assert {one.error_code for one in answer.results} == {0}, plain(answer)
        self.client = "none"
        self.until(
            60,
            0,
            lambda answer: answer.cluster_authorized_operations == 0,
            message(60, "DescribeClusterRequest", include_cluster_authorized_operations=True),
        )
        self.client = "all"

    def _fill(self, name: str) -> None:
        """Records, a group with an offset, and an open transaction on both topics."""
        coordinator = {"key_type": 0, "coordinator_keys": [f"{name}-g"]}
        found = lambda answer: not answer.coordinators[0].error_code  # noqa: E731
        self.until(10, 4, found, message(10, "FindCoordinatorRequest", **coordinator))
        self.until(10, 4, found, message(10, "FindCoordinatorRequest", key_type=1, coordinator_keys=[f"{name}-t"]))
        part = message(0, "PartitionProduceData", index=0, records=batch_of(b"a"))
        topic = message(0, "TopicProduceData", name=name, partition_data=[part])
        self.until(
            0,
            9,
            lambda answer: not answer.responses[0].partition_responses[0].error_code,
            message(0, "ProduceRequest", acks=-1, timeout_ms=60_000, topic_data=[topic]),
        )
        part = message(8, "OffsetCommitRequestPartition", partition_index=0, committed_offset=1, committed_metadata="")
        topics = [message(8, "OffsetCommitRequestTopic", name=one, partitions=[part]) for one in ("mine", "theirs")]
        self.until(
            8,
            8,
            lambda answer: not answer.topics[0].partitions[0].error_code,
            message(8, "OffsetCommitRequest", group_id=f"{name}-g", topics=topics),
        )
        began = self.until(
            22,
            4,
            lambda answer: not answer.error_code,
            message(22, "InitProducerIdRequest", transactional_id=f"{name}-t", transaction_timeout_ms=600_000),
        )
        topics = [message(24, "AddPartitionsToTxnTopic", name=one, partitions=[0]) for one in ("mine", "theirs")]
        added = message(
            24,
            "AddPartitionsToTxnRequest",
            v3_and_below_transactional_id=f"{name}-t",
            v3_and_below_producer_id=began.producer_id,
            v3_and_below_producer_epoch=began.producer_epoch,
            v3_and_below_topics=topics,
        )
        self.until(
            24,
            3,
            lambda answer: not answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
            added,
        )

    def answers(self, cases: list[Case]) -> Iterator[tuple[str, Any]]:
        """Every client's answer to every question."""
        for case in cases:
            for version in case.versions:
                for client in case.clients:
                    self.client = client
                    request = case.ask(version, self)
                    try:
                        answer = self.skeleton(self.call(case.api_key, version, request))
                    except ConnectionEnded:
                        answer = "the connection was closed"
                    yield f"{case.name} v{version} as {client}", answer

    def skeleton(self, answer: Any) -> Any:
        """Error codes, and what they are about; of everything else only whether it is there."""
        names = {topic_id.hex(): f"ID-OF-{name}" for name, topic_id in self.ids.items()}
        return _reduced(plain(answer), {**names, NO_ID.hex(): ""})


def _is_led(topic: Any) -> bool:
    return not topic.error_code and bool(topic.partitions) and all(one.leader_id >= 0 for one in topic.partitions)


def _reduced(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        found = {}
        for name, inner in value.items():
            if name in LEFT_OUT:
                continue
            if name in ONLY_WHETHER and isinstance(inner, list):
                found[name] = "some" if inner else "none"
            elif name == "topic_id":
                found[name] = names.get(inner, "OTHER")
            elif isinstance(inner, list | dict):
                found[name] = _reduced(inner, names)
            elif name == "producer_id":
                found[name] = "some" if inner >= 0 else "none"
            elif name in KEPT or name.endswith(("error_code", "authorized_operations")):
                found[name] = inner
        return found
    if not isinstance(value, list):
        return value
    inner = [_reduced(one, names) for one in value]
    inner = [one for one in inner if not _is_internal(one)]
    if all(one == {} or not isinstance(one, dict) for one in inner):
        return "some" if inner else "none"
    return sorted(inner, key=lambda one: json.dumps(one, sort_keys=True))


def _is_internal(one: Any) -> bool:
    """Brokers differ in when they make their own topics."""
    return isinstance(one, dict) and str(one.get("name") or one.get("topic") or one.get("resource_name")).startswith(
        "__"
    )


def main() -> None:
    """Print Kafka's answers to all questions."""
    from tests.golden.rights_plays import CASES
    from tests.interop.java.real_kafka import RealKafka

    with tempfile.TemporaryDirectory() as folder, RealKafka(Path(folder), settings=SETTINGS) as kafka:
        stage = Stage(kafka.address)
        stage.prepare()
        lines = [f"{json.dumps(step)}: {json.dumps(answer, sort_keys=True)}" for step, answer in stage.answers(CASES)]
        stage.close()
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
