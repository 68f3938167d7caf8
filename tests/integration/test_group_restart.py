"""Groups and their positions outlive kill -9 of the broker: no rebalance, nothing acknowledged is lost (G1, T5)."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.broker_process import BrokerProcess

WAIT_S = 30.0


def make_topic(broker: BrokerProcess, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_S)


def member(broker: BrokerProcess, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 200,
            **settings,
        }
    )


def poll_until(consumers: list[Consumer], done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline, "the group did not come to where it should"
        for consumer in consumers:
            consumer.poll(0.05)


def test_a_group_goes_on_in_its_generation_after_the_broker_was_killed(file_broker: BrokerProcess) -> None:
    make_topic(file_broker, "t", 4)
    assigned: list[tuple[int, int]] = []

    def on_assign(who: int) -> Callable[[Consumer, list[TopicPartition]], None]:
        return lambda _, partitions: assigned.append((who, len(partitions)))

    consumers = [member(file_broker, "g", **{"group.instance.id": f"i{who}"}) for who in range(2)]
    for who, consumer in enumerate(consumers):
        consumer.subscribe(["t"], on_assign=on_assign(who))
    poll_until(consumers, lambda: all(len(consumer.assignment()) == 2 for consumer in consumers))
    for consumer in consumers:
        consumer.commit(
            offsets=[TopicPartition("t", tp.partition, 7) for tp in consumer.assignment()], asynchronous=False
        )
    before = list(assigned)

    file_broker.restart()

    deadline = time.monotonic() + WAIT_S
    pending = list(consumers)
    while pending:
        assert time.monotonic() < deadline, "no commit in the old generation went through"
        for consumer in list(pending):
            consumer.poll(0.1)
            try:
                consumer.commit(
                    offsets=[TopicPartition("t", tp.partition, 8) for tp in consumer.assignment()], asynchronous=False
                )
                pending.remove(consumer)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
    assert assigned == before
    offsets = consumers[0].committed([TopicPartition("t", partition) for partition in range(4)], WAIT_S)
    assert [partition.offset for partition in offsets] == [8, 8, 8, 8]
    for consumer in consumers:
        consumer.close()


@pytest.mark.parametrize("commits", [True, False])
def test_positions_of_an_open_transaction_share_its_fate_after_the_broker_was_killed(
    file_broker: BrokerProcess, commits: bool
) -> None:
    make_topic(file_broker, "t", 1)
    reader = member(file_broker, "g", **{"isolation.level": "read_committed"})
    reader.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    producer = Producer({"bootstrap.servers": file_broker.address, "transactional.id": "x"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("t", b"v", partition=0)
    producer.flush(WAIT_S)
    producer.send_offsets_to_transaction([TopicPartition("t", 0, 5)], reader.consumer_group_metadata(), WAIT_S)

    file_broker.restart()

    if commits:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)
    [found] = reader.committed([TopicPartition("t", 0)], WAIT_S)
    assert found.offset == (5 if commits else 1)
    reader.close()
