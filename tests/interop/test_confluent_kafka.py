"""Producing, consuming, groups and the admin API through confluent-kafka (librdkafka)."""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)

from tests.interop.confluent_steps import (
    READ_COMMITTED,
    WAIT_SECONDS,
    admin_client,
    consumer_of,
    create_topic,
    poll_records,
    poll_until,
    read_to_end,
    values,
)
from tests.kit.stores import alone

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_records_come_back_as_they_were_sent(bootstrap: str, name: str, codec: str, idempotent: bool) -> None:
    """Every codec; keys, empty and null values, headers with repeated names and null values, timestamps; the order."""
    topic = create_topic(bootstrap, name)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "linger.ms": 20,
        }
    )
    headers = [("trace", b"\x00\xff"), ("trace", None), ("empty", b"")]
    for number in range(200):
        producer.produce(topic, b"value" * 20, b"%d" % number, 0, timestamp=1_700_000_000_000 + number, headers=headers)
    producer.produce(topic, None, b"tombstone", 0)
    producer.produce(topic, b"", None, 0)
    assert producer.flush(WAIT_SECONDS) == 0
    seen = read_to_end(bootstrap, topic, [0], READ_COMMITTED)
    assert [one.offset() for one in seen] == list(range(202))
    assert [one.key() for one in seen] == [b"%d" % number for number in range(200)] + [b"tombstone", None]
    assert [one.timestamp()[1] - 1_700_000_000_000 for one in seen[:200]] == list(range(200))
    assert all(one.headers() == headers and one.value() == b"value" * 20 for one in seen[:200])
    assert (seen[200].value(), seen[201].value()) == (None, b"")


def test_acknowledgements_name_partition_and_offset(bootstrap: str, name: str) -> None:
    topic = create_topic(bootstrap, name, partitions=2)
    acknowledged: list[tuple[int, int]] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        assert error is None
        acknowledged.append((message.partition(), message.offset()))  # type: ignore[attr-defined]

    for acks in ("all", "1"):
        producer = Producer({"bootstrap.servers": bootstrap, "acks": acks})
        for partition in (0, 1):
            producer.produce(topic, b"x", partition=partition, on_delivery=delivered)
        producer.flush(WAIT_SECONDS)
    assert sorted(acknowledged) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_record_too_large_is_refused(bootstrap: str, name: str) -> None:
    topic = create_topic(bootstrap, name, max_message_bytes="10000")
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x" * 20_000, partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT_SECONDS)
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    producer.produce(topic, b"y", partition=0)
    producer.flush(WAIT_SECONDS)
    assert values(read_to_end(bootstrap, topic, [0], READ_COMMITTED)) == [b"y"]


def test_producing_to_an_unknown_topic_makes_it(bootstrap: str, name: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b"first")
    assert producer.flush(WAIT_SECONDS) == 0
    partitions = admin_client(bootstrap).list_topics(name, WAIT_SECONDS).topics[name].partitions
    assert values(read_to_end(bootstrap, name, partitions, READ_COMMITTED)) == [b"first"]


def test_a_group_shares_partitions_and_goes_on_where_it_stood(bootstrap: str, name: str) -> None:
    topic = create_topic(bootstrap, name, partitions=4)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(40):
        producer.produce(topic, b"%d" % number, partition=number % 4)
    producer.flush(WAIT_SECONDS)

    first, second = consumer_of(bootstrap, name), consumer_of(bootstrap, name)
    first.subscribe([topic])
    poll_records(first, 40)
    first.commit(asynchronous=False)
    assert {part.offset for part in first.committed(first.assignment(), WAIT_SECONDS)} == {10}

    second.subscribe([topic])
    poll_until((first, second), lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2)
    assert {part.partition for one in (first, second) for part in one.assignment()} == set(range(4))

    first.close()
    poll_until([second], lambda: len(second.assignment()) == 4)
    for partition in range(4):
        producer.produce(topic, b"new", partition=partition)
    producer.flush(WAIT_SECONDS)
    assert values(poll_records(second, 4)) == [b"new"] * 4, "what the group had committed does not come again"
    second.close()


def test_a_group_works_with_cooperative_rebalances(bootstrap: str, name: str) -> None:
    """Row G3 (KIP-429): what is to move is given up in one rebalance and handed over in the next."""
    topic = create_topic(bootstrap, name, partitions=4)
    cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
    members = [consumer_of(bootstrap, name, cooperative) for _ in range(2)]
    members[0].subscribe([topic])
    poll_until(members[:1], lambda: len(members[0].assignment()) == 4)
    members[1].subscribe([topic])
    poll_until(members, lambda: [len(one.assignment()) for one in members] == [2, 2])
    for one in members:
        one.close()


def test_a_static_member_comes_back_to_its_place(bootstrap: str, name: str) -> None:
    """KIP-345: the same group.instance.id takes over without a rebalance of the others."""
    topic = create_topic(bootstrap, name, partitions=2)
    static = {"group.instance.id": f"{name}-a"}
    member = consumer_of(bootstrap, name, static)
    member.subscribe([topic])
    poll_until([member], lambda: len(member.assignment()) == 2)
    member.close()
    described = admin_client(bootstrap).describe_consumer_groups([name])[name].result(WAIT_SECONDS)
    assert [one.group_instance_id for one in described.members] == [f"{name}-a"], "closing does not make it leave"
    again = consumer_of(bootstrap, name, static)
    again.subscribe([topic])
    poll_until([again], lambda: len(again.assignment()) == 2)
    again.close()


def test_offsets_for_times_and_watermarks(bootstrap: str, name: str) -> None:
    topic = create_topic(bootstrap, name)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, b"x", partition=0, timestamp=1_700_000_000_000 + 1000 * number)
    producer.flush(WAIT_SECONDS)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    asked = [TopicPartition(topic, 0, 1_700_000_000_000 + 4500)]
    assert consumer.offsets_for_times(asked, WAIT_SECONDS)[0].offset == 5
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_SECONDS) == (0, 10)
    consumer.close()


def test_admin_makes_changes_and_deletes_topics(bootstrap: str, name: str) -> None:
    admin = admin_client(bootstrap)
    create_topic(bootstrap, name, partitions=2, retention_ms="3600000")
    with pytest.raises(KafkaException) as caught:
        create_topic(bootstrap, name)
    assert caught.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS

    admin.create_partitions([NewPartitions(name, 5)])[name].result(WAIT_SECONDS)
    assert len(admin.list_topics(name, WAIT_SECONDS).topics[name].partitions) == 5

    resource = ConfigResource(ResourceType.TOPIC, name)
    assert admin.describe_configs([resource])[resource].result(WAIT_SECONDS)["retention.ms"].value == "3600000"
    entry = ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(WAIT_SECONDS)
    assert admin.describe_configs([resource])[resource].result(WAIT_SECONDS)["retention.ms"].value == "7200000"

    admin.delete_topics([name])[name].result(WAIT_SECONDS)
    assert name not in admin.list_topics(timeout=WAIT_SECONDS).topics


def test_admin_sees_groups_and_deletes_records(bootstrap: str, name: str) -> None:
    admin = admin_client(bootstrap)
    topic = create_topic(bootstrap, name)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0)
    producer.flush(WAIT_SECONDS)
    consumer = consumer_of(bootstrap, name)
    consumer.subscribe([topic])
    poll_records(consumer, 10)
    consumer.commit(asynchronous=False)

    described = admin.describe_consumer_groups([name])[name].result(WAIT_SECONDS)
    assert described.state.name == "STABLE"
    assert [part.topic for one in described.members for part in one.assignment.topic_partitions] == [topic]
    assert name in {group.group_id for group in admin.list_consumer_groups().result(WAIT_SECONDS).valid}
    consumer.close()
    admin.delete_consumer_groups([name])[name].result(WAIT_SECONDS)

    partition = TopicPartition(topic, 0, 4)
    assert admin.delete_records([partition])[partition].result(WAIT_SECONDS).low_watermark == 4
    earliest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()})
    assert earliest[TopicPartition(topic, 0)].result(WAIT_SECONDS).offset == 4
    assert values(read_to_end(bootstrap, topic, [0], READ_COMMITTED)) == [b"%d" % number for number in range(4, 10)]


@alone("it expects the address of one")
def test_admin_describes_the_cluster(bootstrap: str) -> None:
    cluster = admin_client(bootstrap).describe_cluster().result(WAIT_SECONDS)
    assert cluster.cluster_id
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [bootstrap]
