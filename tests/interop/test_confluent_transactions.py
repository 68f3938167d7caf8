"""Transactions through confluent-kafka (librdkafka, protocol TV1): what commits is seen, what aborts is not."""

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.interop.confluent_steps import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    WAIT_SECONDS,
    admin_client,
    consumer_of,
    create_topic,
    poll_records,
    read_to_end,
    transactional_producer,
    values,
)

pytestmark = pytest.mark.interop


def end_offset(bootstrap: str, topic: str, isolation: IsolationLevel) -> int:
    """What ListOffsets calls the end: the last stable offset, or the high watermark."""
    partition = TopicPartition(topic, 0)
    asked = admin_client(bootstrap).list_offsets({partition: OffsetSpec.latest()}, isolation_level=isolation)
    return int(asked[partition].result(WAIT_SECONDS).offset)


def test_committed_records_are_read_and_aborted_ones_are_not(bootstrap: str, name: str) -> None:
    topic = create_topic(bootstrap, name, partitions=2)
    producer = transactional_producer(bootstrap, name)
    for number in range(6):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, b"%d" % number, partition=partition)
        if number % 3 == 1:
            producer.flush(WAIT_SECONDS)
            producer.abort_transaction(WAIT_SECONDS)
        else:
            producer.commit_transaction(WAIT_SECONDS)
    seen = read_to_end(bootstrap, topic, (0, 1), READ_COMMITTED)
    assert values(seen) == [b"0", b"2", b"3", b"5"] * 2
    assert len(read_to_end(bootstrap, topic, (0, 1), READ_UNCOMMITTED)) == 12


def test_markers_take_an_offset_each(bootstrap: str, name: str) -> None:
    """Two records, a COMMIT marker, two records, an ABORT marker, two records, a COMMIT marker."""
    topic = create_topic(bootstrap, name)
    producer = transactional_producer(bootstrap, name)
    for commits in (True, False, True):
        producer.begin_transaction()
        for _ in range(2):
            producer.produce(topic, b"x", partition=0)
        producer.flush(WAIT_SECONDS)
        (producer.commit_transaction if commits else producer.abort_transaction)(WAIT_SECONDS)
    assert [one.offset() for one in read_to_end(bootstrap, topic, [0], READ_COMMITTED)] == [0, 1, 6, 7]
    assert end_offset(bootstrap, topic, IsolationLevel.READ_COMMITTED) == 9


def test_an_open_transaction_holds_readers_at_the_last_stable_offset(bootstrap: str, name: str) -> None:
    topic = create_topic(bootstrap, name)
    slow = transactional_producer(bootstrap, f"{name}-slow")
    slow.begin_transaction()
    slow.produce(topic, b"open", partition=0)
    slow.flush(WAIT_SECONDS)
    quick = transactional_producer(bootstrap, f"{name}-quick")
    quick.begin_transaction()
    quick.produce(topic, b"committed behind it", partition=0)
    quick.commit_transaction(WAIT_SECONDS)
    assert end_offset(bootstrap, topic, IsolationLevel.READ_COMMITTED) == 0
    assert end_offset(bootstrap, topic, IsolationLevel.READ_UNCOMMITTED) == 3
    assert read_to_end(bootstrap, topic, [0], READ_COMMITTED) == []
    slow.commit_transaction(WAIT_SECONDS)
    assert values(read_to_end(bootstrap, topic, [0], READ_COMMITTED)) == [b"open", b"committed behind it"]


def test_a_successor_fences_the_older_producer_and_aborts_its_transaction(bootstrap: str, name: str) -> None:
    topic = create_topic(bootstrap, name)
    older = transactional_producer(bootstrap, name)
    older.begin_transaction()
    older.produce(topic, b"never to be seen", partition=0)
    older.flush(WAIT_SECONDS)
    successor = transactional_producer(bootstrap, name)
    with pytest.raises(KafkaException) as caught:
        older.commit_transaction(WAIT_SECONDS)
    assert caught.value.args[0].fatal()
    assert caught.value.args[0].code() == KafkaError._FENCED
    successor.begin_transaction()
    successor.produce(topic, b"seen", partition=0)
    successor.commit_transaction(WAIT_SECONDS)
    assert values(read_to_end(bootstrap, topic, [0], READ_COMMITTED)) == [b"seen"]


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_of_a_transaction_share_its_fate(bootstrap: str, name: str, commits: bool) -> None:
    source, target = create_topic(bootstrap, f"{name}-in"), create_topic(bootstrap, f"{name}-out")
    producer = transactional_producer(bootstrap, name)
    producer.begin_transaction()
    for number in range(5):
        producer.produce(source, b"%d" % number, partition=0)
    producer.commit_transaction(WAIT_SECONDS)

    consumer = consumer_of(bootstrap, name, READ_COMMITTED)
    consumer.subscribe([source])
    taken = poll_records(consumer, 5)
    producer.begin_transaction()
    for message in taken:
        producer.produce(target, b"<" + message.value() + b">", partition=0)
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_SECONDS)
    (producer.commit_transaction if commits else producer.abort_transaction)(WAIT_SECONDS)

    committed = consumer.committed([TopicPartition(source, 0)], WAIT_SECONDS)[0].offset
    consumer.close()
    written = values(read_to_end(bootstrap, target, [0], READ_COMMITTED))
    if commits:
        assert (committed, len(written)) == (5, 5)
    else:
        assert (committed, written) == (-1001, [])


def test_a_consumer_that_lost_its_place_cannot_commit_offsets(bootstrap: str, name: str) -> None:
    """KIP-447: the member and generation in TxnOffsetCommit fence a zombie that the producer's epoch does not."""
    topic = create_topic(bootstrap, name)
    producer = transactional_producer(bootstrap, name)
    consumer = consumer_of(bootstrap, name, READ_COMMITTED)
    consumer.subscribe([topic])
    producer.begin_transaction()
    producer.produce(topic, b"one", partition=0)
    producer.commit_transaction(WAIT_SECONDS)
    poll_records(consumer, 1)
    of_a_zombie = consumer.consumer_group_metadata()
    consumer.close()

    producer.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], of_a_zombie, WAIT_SECONDS)
    assert caught.value.args[0].txn_requires_abort()
    producer.abort_transaction(WAIT_SECONDS)


def test_transactions_follow_each_other_at_once(bootstrap: str, name: str) -> None:
    topic = create_topic(bootstrap, name, partitions=3)
    producer = transactional_producer(bootstrap, name)
    for number in range(40):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=number % 3)
        producer.commit_transaction(WAIT_SECONDS)
    seen = read_to_end(bootstrap, topic, range(3), READ_COMMITTED)
    assert sorted(int(value) for value in values(seen) if value is not None) == list(range(40))


def test_a_transaction_of_many_records_is_one(bootstrap: str, name: str) -> None:
    """20,000 records over 3 partitions, in many batches; nothing of it shows before the commit."""
    topic = create_topic(bootstrap, name, partitions=3)
    producer = transactional_producer(bootstrap, name, linger_ms=5, compression_type="lz4")
    producer.begin_transaction()
    for number in range(20_000):
        producer.produce(topic, b"%0100d" % number, partition=number % 3)
        producer.poll(0)
    producer.flush(WAIT_SECONDS)
    assert read_to_end(bootstrap, topic, range(3), READ_COMMITTED) == []
    producer.commit_transaction(WAIT_SECONDS)
    seen = read_to_end(bootstrap, topic, range(3), READ_COMMITTED)
    assert [int(one.value()) for one in seen] == [number for p in range(3) for number in range(p, 20_000, 3)]
