"""What the tests with confluent-kafka do again and again: make clients, write, read until enough or until the end."""

import functools
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

WAIT_SECONDS = 100.0
LONG_OPEN = {"transaction.timeout.ms": 300_000}
"""No transaction ends because this process was slow."""
READ_COMMITTED = {"isolation.level": "read_committed"}
READ_UNCOMMITTED = {"isolation.level": "read_uncommitted"}


@functools.cache
def admin_client(bootstrap: str) -> AdminClient:
    """The admin client, one for all: its answers come only while it lives."""
    return AdminClient({"bootstrap.servers": bootstrap})


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> str:
    """Make a topic that brokers know, return its name; dots of configuration names are written as underscores."""
    dotted = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(topic, partitions, 1, config=dotted)
    admin_client(bootstrap).create_topics([new])[topic].result(WAIT_SECONDS)
    until_led(admin_client(bootstrap), topic, partitions)
    return topic


def until_led(admin: AdminClient, topic: str, partitions: int) -> None:
    """Wait until a broker tells of all partitions: Kafka's learn of a topic a moment after it was made."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        known = admin.list_topics(topic, WAIT_SECONDS).topics[topic].partitions
        if len(known) == partitions and all(one.leader >= 0 for one in known.values()):
            return
        assert time.monotonic() < deadline, f"{topic} is not known: {known}"
        time.sleep(0.02)


def transactional_producer(bootstrap: str, transactional_id: str, **options: Any) -> Producer:
    """A producer that has its id and epoch: every older one of the same name is fenced."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **LONG_OPEN}
    producer = Producer(settings | {key.replace("_", "."): value for key, value in options.items()})
    producer.init_transactions(WAIT_SECONDS)
    return producer


def consumer_of(bootstrap: str, group: str, *settings: dict[str, Any]) -> Consumer:
    """A consumer that starts at the beginning and commits only when asked."""
    merged: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "session.timeout.ms": 60_000,
        "heartbeat.interval.ms": 500,
    }
    for more in settings:
        merged |= more
    return Consumer(merged)


def read_to_end(bootstrap: str, topic: str, partitions: Iterable[int], isolation: dict[str, str]) -> list[Message]:
    """Every record that this isolation level shows now, partition by partition."""
    wanted = set(partitions)
    consumer = consumer_of(bootstrap, "reader", isolation)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in wanted])
    found: list[Message] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while wanted:
        assert time.monotonic() < deadline, f"partitions {wanted} did not come to their end"
        message = polled(consumer)
        if message is not None and message.error() is None:
            found.append(message)
        elif message is not None:
            wanted.discard(message.partition())
    consumer.close()
    return sorted(found, key=lambda one: (one.partition(), one.offset()))


def polled(consumer: Consumer) -> Message | None:
    """A record, or that a partition has come to its end, or nothing yet."""
    message = consumer.poll(1.0)
    error = None if message is None else message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    return message


def until_decided(bootstrap: str, topic: str, partitions: Iterable[int]) -> None:
    """Wait until no transaction is open.

    Kafka says that one is committed before its markers are written; that of a member that was killed times out.
    """
    places = [TopicPartition(topic, partition) for partition in partitions]

    def ends(isolation: IsolationLevel) -> list[int]:
        latest = {place: OffsetSpec.latest() for place in places}
        asked = admin_client(bootstrap).list_offsets(latest, isolation_level=isolation)
        return [asked[place].result(WAIT_SECONDS).offset for place in places]

    deadline = time.monotonic() + 2 * WAIT_SECONDS
    while ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED):
        assert time.monotonic() < deadline, f"a transaction in {topic} is open"
        time.sleep(0.05)


def poll_records(consumer: Consumer, count: int) -> list[Message]:
    """The next `count` records of a consumer."""
    found: list[Message] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        message = polled(consumer)
        if message is not None and message.error() is None:
            found.append(message)
    return found


def poll_until(consumers: Iterable[Consumer], reached: Callable[[], bool]) -> None:
    """Keep consumers alive until something is so."""
    deadline = time.monotonic() + WAIT_SECONDS
    members = list(consumers)
    while not reached():
        assert time.monotonic() < deadline, "it never came to that"
        for consumer in members:
            consumer.poll(0.1)


def values(messages: Iterable[Message]) -> list[bytes | None]:
    """The values, in order."""
    return [message.value() for message in messages]
