"""Producing, consuming, groups, transactions and the admin API through kafka-python."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.interop.confluent_steps import create_topic

pytestmark = pytest.mark.interop
WAIT_SECONDS = 100


@contextmanager
def producer_of(bootstrap: str, **options: Any) -> Iterator[KafkaProducer]:
    """A producer that is closed at the end."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, **options)
    try:
        yield producer
    finally:
        producer.close(timeout=WAIT_SECONDS)


@contextmanager
def consumer_of(bootstrap: str, *topics: str, **options: Any) -> Iterator[KafkaConsumer]:
    """A consumer from the beginning that commits only when asked."""
    consumer = KafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=WAIT_SECONDS * 1000,
        session_timeout_ms=60_000,
        **options,
    )
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer: KafkaConsumer, count: int) -> list[Any]:
    """The next `count` records."""
    return [next(consumer) for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip"])  # it brings no other codec
def test_records_come_back_as_they_were_sent(bootstrap: str, name: str, codec: str | None) -> None:
    create_topic(bootstrap, name)
    with producer_of(bootstrap, compression_type=codec) as producer:
        for number in range(100):
            sent = producer.send(name, b"value" * 10, key=b"%d" % number, headers=[("h", b"\x00")])
        assert sent.get(WAIT_SECONDS).offset == 99
    with consumer_of(bootstrap, name) as consumer:
        seen = take(consumer, 100)
    assert [one.key for one in seen] == [b"%d" % number for number in range(100)]
    assert all(one.value == b"value" * 10 and list(one.headers) == [("h", b"\x00")] for one in seen)


def test_a_group_goes_on_where_it_stood(bootstrap: str, name: str) -> None:
    create_topic(bootstrap, name, partitions=2)
    with producer_of(bootstrap) as producer:
        for number in range(10):
            producer.send(name, b"%d" % number, partition=number % 2)
        producer.flush(WAIT_SECONDS)
        with consumer_of(bootstrap, name, group_id=name) as first:
            assert {one.value for one in take(first, 10)} == {b"%d" % number for number in range(10)}
            first.commit()
        producer.send(name, b"new", partition=1)
        producer.flush(WAIT_SECONDS)
    with consumer_of(bootstrap, name, group_id=name) as second:
        assert take(second, 1)[0].value == b"new"
        assert second.committed(TopicPartition(name, 0)) == 5


def test_transactions_commit_abort_and_carry_offsets(bootstrap: str, name: str) -> None:
    source, target = create_topic(bootstrap, f"{name}-in"), create_topic(bootstrap, f"{name}-out")
    place = TopicPartition(source, 0)
    with producer_of(bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        for value, offset, commits in ((b"aborted", 7, False), (b"committed", 1, True)):
            producer.begin_transaction()
            producer.send(target, value)
            producer.send_offsets_to_transaction({place: OffsetAndMetadata(offset, "", -1)}, name)
            producer.flush(WAIT_SECONDS)
            (producer.commit_transaction if commits else producer.abort_transaction)()
    with consumer_of(bootstrap, target, group_id=name, isolation_level="read_committed") as consumer:
        assert take(consumer, 1)[0].value == b"committed"
        assert consumer.committed(place) == 1


def test_a_successor_fences_the_older_producer(bootstrap: str, name: str) -> None:
    create_topic(bootstrap, name)
    with producer_of(bootstrap, transactional_id=name) as older, producer_of(bootstrap, transactional_id=name) as newer:
        older.init_transactions()
        older.begin_transaction()
        older.send(name, b"lost").get(WAIT_SECONDS)
        newer.init_transactions()
        too_late = older.send(name, b"too late")
        with pytest.raises(KafkaError):
            too_late.get(WAIT_SECONDS)
        newer.begin_transaction()
        newer.send(name, b"seen")
        newer.commit_transaction()
    with consumer_of(bootstrap, name, isolation_level="read_committed") as consumer:
        assert take(consumer, 1)[0].value == b"seen"


def test_admin_lists_and_deletes(bootstrap: str, name: str) -> None:
    create_topic(bootstrap, name)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        assert name in admin.list_topics()
        admin.delete_topics([name])
        assert name not in admin.list_topics()
    finally:
        admin.close()
