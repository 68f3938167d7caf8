"""Members of the consumer protocol over kill -9 of the broker; topics by expression: confluent-kafka (G4, G8)."""

import re
import time
from collections.abc import Callable, Iterable
from contextlib import closing

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

import fencepost
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.api68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire

WAIT_S = 100.0
EPOCH = re.compile(r"group g: epoch (\d+)")
QUICK = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}


def make_topic(broker: BrokerProcess, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_S)


def fill(broker: BrokerProcess, topic: str, partitions: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(count):
        for partition in range(partitions):
            producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(WAIT_S) == 0


def member(broker: BrokerProcess, *topics: str, **settings: object) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **settings,
        }
    )
    consumer.subscribe(list(topics))
    return consumer


def held(consumer: Consumer) -> set[tuple[str, int]]:
    return {(one.topic, one.partition) for one in consumer.assignment()}


def until(wanted: Callable[[], bool], members: Iterable[Consumer], what: str) -> list[bytes]:
    """Poll until it is so; the values that were read meanwhile."""
    read: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while not wanted():
        assert time.monotonic() < deadline, f"{what}: {[held(one) for one in members]}"
        for one in members:
            record = one.poll(0.05)
            if record is not None and record.error() is None:
                read.append(record.value() or b"")
    return read


def at(offset: int, members: Iterable[Consumer]) -> bool:
    """Whether all that the members hold is read up to here."""
    return all(place.offset == offset for one in members for place in one.position(one.assignment()))


def last_epoch(broker: BrokerProcess) -> int:
    return int(EPOCH.findall(broker.log())[-1])


def test_a_kill_of_the_broker_moves_no_partition_g4_g8(start_broker: StartBroker) -> None:
    """Both members go on with what they had, from where they had committed, without a rebalance."""
    broker = start_broker(files=True, settings=QUICK)
    make_topic(broker, "t", 4)
    fill(broker, "t", 4, 5)
    with closing(member(broker, "t")) as a, closing(member(broker, "t", **{"group.instance.id": "i"})) as b:
        pair = (a, b)
        until(lambda: len(held(a)) == len(held(b)) == 2 and not held(a) & held(b), pair, "two each")
        before, epoch = (held(a), held(b)), last_epoch(broker)
        until(lambda: at(5, pair), pair, "to read all")
        for one in pair:
            one.commit(asynchronous=False)
        broker.kill()
        broker.start()
        fill(broker, "t", 4, 1)
        read = until(lambda: at(6, pair), pair, "to go on")
        assert read == [b"0"] * 4, "each new record once"
        assert (held(a), held(b)) == before
        for one in pair:
            one.commit(asynchronous=False)
        assert "epoch" not in broker.log() or last_epoch(broker) == epoch
    with closing(member(broker, "t")) as late:
        places = [TopicPartition("t", partition) for partition in range(4)]
        assert [found.offset for found in late.committed(places, WAIT_S)] == [6] * 4


def test_a_member_that_dies_with_the_broker_is_missed_afterwards_g4(start_broker: StartBroker) -> None:
    broker = start_broker(files=True, settings={**QUICK, "group.consumer.session.timeout.ms": "2000"})
    make_topic(broker, "t", 2)
    with closing(member(broker, "t")) as a:
        until(lambda: len(held(a)) == 2, (a,), "a to have both")
        with Wire(broker.connect()) as ghost:
            joins = {"group_id": "g", "member_id": "ghost", "rebalance_timeout_ms": 10_000, "topic_partitions": []}

            def gave_one_back() -> bool:
                """The ghost joins again each time: it has to live until then, however long that takes."""
                ghost.call(68, 1, ConsumerGroupHeartbeatRequest(subscribed_topic_names=["t"], **joins))
                return len(held(a)) == 1

            until(gave_one_back, (a,), "a to give one back")
        broker.kill()
        broker.start()
        until(lambda: len(held(a)) == 2, (a,), "a to take over")


def test_topics_by_expression_come_as_they_are_made_g4(start_broker: StartBroker) -> None:
    broker = start_broker(files=True, settings=QUICK)
    for name in ("orders-eu", "orders-us", "invoices"):
        make_topic(broker, name, 1)
    with closing(member(broker, "^orders-.*")) as a:
        until(lambda: held(a) == {("orders-eu", 0), ("orders-us", 0)}, [a], "the two that match")
        make_topic(broker, "orders-jp", 2)
        until(lambda: ("orders-jp", 1) in held(a), [a], "the new one")
        assert ("invoices", 0) not in held(a)


def test_new_partitions_are_given_out_g4(start_broker: StartBroker) -> None:
    broker = start_broker(files=True, settings=QUICK)
    make_topic(broker, "t", 1)
    with closing(member(broker, "t")) as a, closing(member(broker, "t")) as b:
        until(lambda: len(held(a)) + len(held(b)) == 1, (a, b), "one of them to have it")
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_partitions([NewPartitions("t", 4)])["t"].result(WAIT_S)
        until(lambda: len(held(a)) == len(held(b)) == 2, (a, b), "two each")


def test_a_groups_own_settings_hold_and_outlive_the_broker_d2_g4(start_broker: StartBroker) -> None:
    broker = start_broker(files=True, settings=QUICK)
    make_topic(broker, "t", 1)
    name = "consumer.heartbeat.interval.ms"

    def interval_of(group: str) -> int:
        with Wire(broker.connect()) as wire:
            joins = {"group_id": group, "member_id": "a", "rebalance_timeout_ms": 10_000, "topic_partitions": []}
            reply = wire.call(68, 1, ConsumerGroupHeartbeatRequest(subscribed_topic_names=["t"], **joins))
            return int(reply.heartbeat_interval_ms)

    def alter(value: str) -> int:
        config = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=32, resource_name="g", configs=[config])
        with Wire(broker.connect()) as wire:
            answer = wire.call(44, 1, IncrementalAlterConfigsRequest(resources=[resource]))
            return int(answer.responses[0].error_code)

    assert alter("700") == 0
    assert alter("1") == ErrorCode.INVALID_CONFIG
    assert (interval_of("g"), interval_of("h")) == (700, 200)
    broker.kill()
    broker.start()
    assert (interval_of("g"), interval_of("h")) == (700, 200)


async def test_our_admin_describes_groups_of_both_protocols_g11(start_broker: StartBroker) -> None:
    broker = start_broker(files=True, settings=QUICK)
    make_topic(broker, "t", 2)
    with closing(member(broker, "t", **{"group.instance.id": "i", "client.id": "c"})) as a:
        until(lambda: len(held(a)) == 2, (a,), "a to have both")
        async with fencepost.Client(broker.address) as kafka, kafka.admin() as admin:
            told = (await admin.describe_groups("g"))["g"]
            assert (told.state, told.protocol_type, told.protocol) == ("Stable", "consumer", "uniform")
            [only] = told.members
            assert (only.instance_id, only.client_id) == ("i", "c")
            assert only.partitions == (("t", 0), ("t", 1))
            assert (await admin.describe_groups("nobody"))["nobody"].state == "Dead"
