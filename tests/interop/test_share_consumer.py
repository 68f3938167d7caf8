"""Share groups (KIP-932) through confluent-kafka's ShareConsumer: each rule is one of Apache Kafka 4.3.1 as well."""

import time
from collections.abc import Callable, Iterator
from itertools import cycle

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.interop.confluent_steps import (
    LONG_OPEN,
    WAIT_SECONDS,
    admin_client,
    create_topic,
    transactional_producer,
    values,
)

pytestmark = pytest.mark.interop

Join = Callable[..., ShareConsumer]


def set_group(bootstrap: str, group: str, **config: str) -> None:
    """Set configurations of a group, dots written as underscores; Kafka's own way to begin at the log's start."""
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in {"share_auto_offset_reset": "earliest", **config}.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin_client(bootstrap).incremental_alter_configs([resource])[resource].result(WAIT_SECONDS)


def produce(bootstrap: str, topic: str, *contents: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for content in contents:
        producer.produce(topic, content, partition=0)
    assert producer.flush(WAIT_SECONDS) == 0


def polled(consumer: ShareConsumer, count: int = 1) -> list[Message]:
    """At least `count` records of one or more polls. With explicit acknowledgement, those of one poll."""
    found: list[Message] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        found += consumer.poll(0.5)
    assert [message.error() for message in found] == [None] * len(found)
    return found


def acknowledged(consumer: ShareConsumer, messages: list[Message], *kinds: AcknowledgeType) -> None:
    """Acknowledge with these types in turn, and wait until the broker has taken it."""
    for message, kind in zip(messages, cycle(kinds), strict=False):
        consumer.acknowledge(message, kind)
    assert list(consumer.commit_sync(WAIT_SECONDS).values()) == [None]


@pytest.fixture
def join(bootstrap: str, name: str) -> Iterator[Join]:
    """`join(mode="explicit")` is a member of the group `name`, subscribed to the topic `name`."""
    create_topic(bootstrap, name)
    set_group(bootstrap, name)
    members: list[ShareConsumer] = []

    def joined(mode: str = "explicit") -> ShareConsumer:
        consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": name, "share.acknowledgement.mode": mode})
        members.append(consumer)
        consumer.subscribe([name])
        return consumer

    yield joined
    for member in members:
        member.close()


def test_a_poll_accepts_what_the_poll_before_returned(bootstrap: str, name: str, join: Join) -> None:
    """KafkaShareConsumer, "implicit acknowledgement": the next poll accepts the records of the poll before."""
    produce(bootstrap, name, *(b"%d" % number for number in range(20)))
    first = join("implicit")
    seen = polled(first, 20)
    assert [message.offset() for message in seen] == list(range(20))
    assert {message.delivery_count() for message in seen} == {1}
    produce(bootstrap, name, b"after")
    assert values(polled(first)) == [b"after"]
    assert list(first.commit_sync(WAIT_SECONDS).values()) == [None]
    first.close()
    produce(bootstrap, name, b"for another")
    assert values(polled(join("implicit"))) == [b"for another"], "no record that was accepted comes again"


def test_accept_release_and_reject(bootstrap: str, name: str, join: Join) -> None:
    """AcknowledgeType: a released record comes again with its delivery count, an accepted or rejected one does not."""
    produce(bootstrap, name, b"accept", b"release", b"reject", b"accept 2", b"release 2", b"reject 2")
    member = join()
    kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
    acknowledged(member, polled(member, 6), *kinds)
    again = polled(member, 2)
    assert [(message.value(), message.delivery_count()) for message in again] == [(b"release", 2), (b"release 2", 2)]
    acknowledged(member, again, AcknowledgeType.ACCEPT)
    produce(bootstrap, name, b"next")
    assert values(polled(member)) == [b"next"]


def test_a_record_is_delivered_only_so_often(bootstrap: str, name: str, join: Join) -> None:
    """share.delivery.count.limit: a record released at its last delivery is archived (SharePartition.acknowledge)."""
    set_group(bootstrap, name, share_delivery_count_limit="2")
    produce(bootstrap, name, b"poison")
    member = join()
    for delivery in (1, 2):
        poison = polled(member)
        assert [message.delivery_count() for message in poison] == [delivery]
        acknowledged(member, poison, AcknowledgeType.RELEASE)
    produce(bootstrap, name, b"sound")
    assert values(polled(member)) == [b"sound"]


def test_a_close_gives_back_what_was_not_acknowledged(bootstrap: str, name: str, join: Join) -> None:
    """ShareFetchRequest.FINAL_EPOCH: the session ends and releases what it acquired, before the locks time out."""
    produce(bootstrap, name, b"kept", b"given back")
    first = join()
    seen = polled(first, 2)
    first.acknowledge(seen[0])
    first.close()
    again = polled(join())
    assert [(message.value(), message.delivery_count()) for message in again] == [(b"given back", 2)]


def test_two_members_share_a_partition(bootstrap: str, name: str, join: Join) -> None:
    """KIP-932: partitions are shared, records are not: what one member has acquired the other does not get."""
    first, second = join(), join()
    produce(bootstrap, name, b"one")
    one = polled(first)
    produce(bootstrap, name, b"two")
    two = polled(second)
    assert (values(one), values(two)) == ([b"one"], [b"two"])
    acknowledged(first, one, AcknowledgeType.RELEASE)
    acknowledged(second, two, AcknowledgeType.ACCEPT)
    again = polled(second)
    assert [(message.value(), message.delivery_count()) for message in again] == [(b"one", 2)], "given to the other"


def test_records_of_an_aborted_transaction_are_not_delivered(bootstrap: str, name: str, join: Join) -> None:
    """share.isolation.level=read_committed: SharePartition archives batches of aborted transactions, and markers."""
    set_group(bootstrap, name, share_isolation_level="read_committed")
    producer = transactional_producer(bootstrap, name, **LONG_OPEN)
    for content, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(name, content, partition=0)
        producer.flush(WAIT_SECONDS)
        end(WAIT_SECONDS)
    produce(bootstrap, name, b"plain")
    member = join("implicit")
    assert values(polled(member, 2)) == [b"committed", b"plain"]
