"""What an operator does with confluent-kafka's AdminClient: topics, settings, offsets, elections (D1, D2, D3, D8).

The same passes against Apache Kafka; what it says a moment later is waited for.
"""

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import ElectionType, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.interop.confluent_steps import WAIT_SECONDS, admin_client, create_topic
from tests.kit.stores import alone
from tests.kit.waiting import until

pytestmark = pytest.mark.interop


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    """A client of the broker under test."""
    return admin_client(bootstrap)


def refusal(work: Callable[[], object]) -> str:
    """The name of the error that something ends with."""
    with pytest.raises(KafkaException) as caught:
        work()
    return str(caught.value.args[0].name())


def settings(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    """The settings of one resource by name."""
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(WAIT_SECONDS)
    return found


def alter(admin: AdminClient, name: str, *edits: tuple[str, str | None, AlterConfigOpType], only: bool = False) -> None:
    """Edit a topic's settings."""
    entries = [ConfigEntry(key, value, incremental_operation=operation) for key, value, operation in edits]
    change = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    admin.incremental_alter_configs([change], validate_only=only)[change].result(WAIT_SECONDS)


def test_topics_are_made_only_as_they_may_be_d1(admin: AdminClient, name: str) -> None:
    """Validation alone, manual placement, every refusal, several at once with an answer each."""

    def make(topic: NewTopic, **options: bool) -> None:
        admin.create_topics([topic], **options)[topic.topic].result(WAIT_SECONDS)

    make(NewTopic(name, 2, 1), validate_only=True)
    assert name not in admin.list_topics(timeout=WAIT_SECONDS).topics
    make(NewTopic(name, 3, replica_assignment=[[1], [1], [1]]))
    until(lambda: admin.list_topics(name, WAIT_SECONDS).topics[name], lambda topic: len(topic.partitions) == 3)
    other = f"{name}-other"
    for expected, topic in (
        ("TOPIC_ALREADY_EXISTS", NewTopic(name, 1, 1)),
        ("TOPIC_EXCEPTION", NewTopic("bad/name", 1, 1)),
        ("INVALID_PARTITIONS", NewTopic(other, 0, 1)),
        ("INVALID_REPLICATION_FACTOR", NewTopic(other, 1, 7)),
        ("INVALID_CONFIG", NewTopic(other, 1, 1, config={"no.such": "1"})),
        ("INVALID_CONFIG", NewTopic(other, 1, 1, config={"retention.ms": "soon"})),
        ("INVALID_REPLICA_ASSIGNMENT", NewTopic(other, 1, replica_assignment=[[7]])),
    ):
        for options in ({}, {"validate_only": True}):
            assert refusal(lambda topic=topic, options=options: make(topic, **options)) == expected
    both = admin.create_topics([NewTopic(other, 1, 1), NewTopic(name, 1, 1)])
    both[other].result(WAIT_SECONDS)
    assert refusal(lambda: both[name].result(WAIT_SECONDS)) == "TOPIC_ALREADY_EXISTS"
    deleted = admin.delete_topics([other, f"{name}-none"])
    deleted[other].result(WAIT_SECONDS)
    assert refusal(lambda: deleted[f"{name}-none"].result(WAIT_SECONDS)) == "UNKNOWN_TOPIC_OR_PART"


def test_topics_grow_d1(admin: AdminClient, bootstrap: str, name: str) -> None:
    create_topic(bootstrap, name, partitions=2)

    def grow(*wanted: NewPartitions, **options: bool) -> None:
        [grown] = admin.create_partitions(list(wanted), **options).values()
        grown.result(WAIT_SECONDS)

    for count in (1, 2):
        assert refusal(lambda count=count: grow(NewPartitions(name, count))) == "INVALID_PARTITIONS"
    assert refusal(lambda: grow(NewPartitions(name, 3, [[7]]))) == "INVALID_REPLICA_ASSIGNMENT"
    assert refusal(lambda: grow(NewPartitions(f"{name}-none", 3))) == "UNKNOWN_TOPIC_OR_PART"
    grow(NewPartitions(name, 3), validate_only=True)
    grow(NewPartitions(name, 4, [[1], [1]]))
    until(lambda: admin.list_topics(name, WAIT_SECONDS).topics[name], lambda topic: len(topic.partitions) == 4)


@alone("it expects the address of one")
def test_topics_are_described_with_their_ids_d3(admin: AdminClient, bootstrap: str, name: str) -> None:
    """KIP-516, KIP-430."""
    create_topic(bootstrap, name, partitions=2)
    asked = TopicCollection([name])
    described = admin.describe_topics(asked, include_authorized_operations=True)[name].result(WAIT_SECONDS)
    assert uuid.UUID(int=0) != described.topic_id
    assert [(one.id, one.leader.id, [node.id for node in one.replicas]) for one in described.partitions] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]
    assert {"READ", "WRITE", "DELETE", "ALTER_CONFIGS"} <= {one.name for one in described.authorized_operations}
    gone = TopicCollection([f"{name}-none"])
    assert refusal(lambda: admin.describe_topics(gone)[f"{name}-none"].result(WAIT_SECONDS)) == "UNKNOWN_TOPIC_OR_PART"


def test_settings_of_a_topic_d2(admin: AdminClient, bootstrap: str, name: str) -> None:
    """KIP-226 and KIP-339: sources, synonyms, set, append, subtract, delete, all edits or none."""
    create_topic(bootstrap, name, max_message_bytes="3600000")
    told = settings(admin, ResourceType.TOPIC, name)
    assert (told["max.message.bytes"].value, told["max.message.bytes"].source) == (
        "3600000",
        ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
    )
    policy = told["cleanup.policy"]
    assert (policy.value, policy.source, policy.is_default) == ("delete", ConfigSource.DEFAULT_CONFIG.value, True)
    assert list(policy.synonyms) == ["log.cleanup.policy"]
    to = AlterConfigOpType
    alter(admin, name, ("max.message.bytes", "77", to.SET), ("cleanup.policy", "compact", to.APPEND))
    until(
        lambda: settings(admin, ResourceType.TOPIC, name),
        lambda now: (now["max.message.bytes"].value, now["cleanup.policy"].value) == ("77", "delete,compact"),
    )
    broken = (("max.message.bytes", "88", to.SET), ("segment.bytes", "many", to.SET))
    assert refusal(lambda: alter(admin, name, *broken)) == "INVALID_CONFIG"
    alter(admin, name, ("max.message.bytes", "99", to.SET), only=True)
    alter(admin, name, ("cleanup.policy", "delete", to.SUBTRACT))
    now = until(lambda: settings(admin, ResourceType.TOPIC, name), lambda now: now["cleanup.policy"].value == "compact")
    assert now["max.message.bytes"].value == "77"
    alter(admin, name, ("max.message.bytes", None, to.DELETE))
    until(lambda: settings(admin, ResourceType.TOPIC, name), lambda now: now["max.message.bytes"].is_default)
    missing = f"{name}-none"
    assert refusal(lambda: settings(admin, ResourceType.TOPIC, missing)) == "UNKNOWN_TOPIC_OR_PART"


def test_settings_of_a_broker_d2(admin: AdminClient) -> None:
    told = settings(admin, ResourceType.BROKER, "1")
    assert told["log.cleaner.threads"].is_read_only is False
    assert told["node.id"].is_read_only is True
    assert told["log.retention.hours"].value == "168"


def test_offsets_and_deleted_records_d8(admin: AdminClient, bootstrap: str, name: str) -> None:
    create_topic(bootstrap, name)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(name, b"%d" % number, partition=0, timestamp=1_700_000_000_000 + number)
    assert producer.flush(WAIT_SECONDS) == 0
    here = TopicPartition(name, 0)

    def offset(spec: OffsetSpec) -> int:
        return int(admin.list_offsets({here: spec})[here].result(WAIT_SECONDS).offset)

    specs = (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp())
    assert [offset(spec) for spec in specs] == [0, 10, 9]
    assert offset(OffsetSpec.for_timestamp(1_700_000_000_004)) == 4

    def delete(before: int) -> int:
        place = TopicPartition(name, 0, before)
        return int(admin.delete_records([place])[place].result(WAIT_SECONDS).low_watermark)

    assert delete(4) == 4
    assert offset(OffsetSpec.earliest()) == 4
    assert refusal(lambda: delete(11)) == "OFFSET_OUT_OF_RANGE"


def test_an_election_is_never_needed_d8(admin: AdminClient, bootstrap: str, name: str) -> None:
    """KIP-460."""
    create_topic(bootstrap, name)
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        told = admin.elect_leaders(kind, [TopicPartition(name, 0)]).result(WAIT_SECONDS)
        assert [error.name() for error in told.values()] == ["ELECTION_NOT_NEEDED"]
    none = TopicPartition(f"{name}-none", 0)
    told = admin.elect_leaders(ElectionType.PREFERRED, [none]).result(WAIT_SECONDS)
    assert [error.name() for error in told.values()] == ["UNKNOWN_TOPIC_OR_PART"]


@alone("it expects the address of one")
def test_the_cluster_d3(admin: AdminClient, bootstrap: str) -> None:
    told = admin.describe_cluster(include_authorized_operations=True).result(WAIT_SECONDS)
    assert told.cluster_id == admin.list_topics(timeout=WAIT_SECONDS).cluster_id
    assert [(node.id, f"{node.host}:{node.port}") for node in told.nodes] == [(1, bootstrap)]
    assert told.controller.id == 1
    assert {"CREATE", "ALTER", "DESCRIBE_CONFIGS"} <= {one.name for one in told.authorized_operations}
