"""Groups and their positions outlive kill -9 of the broker: no rebalance, nothing acknowledged is lost (G1, T5)."""

import time
from collections.abc import Callable, Iterable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess

WAIT_S = 100.0
REBALANCE = "prepares a rebalance"
"""What the broker's log says when a group leaves its generation."""
QUICK = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


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
            "log_level": 0,
            "heartbeat.interval.ms": 200,
            **settings,
        }
    )


class Watched:
    """A subscribed consumer; `assigned` has the size of every assignment it was ever given."""

    def __init__(self, broker: BrokerProcess, **settings: object) -> None:
        self.assigned: list[int] = []
        self.consumer = member(broker, "g", **settings)
        self.consumer.subscribe(["t"], on_assign=lambda _, partitions: self.assigned.append(len(partitions)))

    @property
    def held(self) -> set[int]:
        """Its partitions."""
        return {one.partition for one in self.consumer.assignment()}


def until_shared(members: Iterable[Watched], shares: list[int]) -> None:
    """Poll until the members hold so many partitions each."""
    members = list(members)
    poll_until([one.consumer for one in members], lambda: [len(one.held) for one in members] == shares)


def commit(members: Iterable[Watched], offset: int) -> None:
    """Each commits this position for all it holds, in its generation; tries again while the broker comes back."""
    deadline = time.monotonic() + WAIT_S
    waiting = list(members)
    while waiting:
        assert time.monotonic() < deadline, "a commit did not go through"
        one = waiting[0]
        one.consumer.poll(0.1)
        try:
            one.consumer.commit(
                offsets=[TopicPartition("t", number, offset) for number in one.held], asynchronous=False
            )
            waiting.remove(one)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def position(consumer: Consumer, partition: int = 0) -> int:
    """The committed offset of a partition of `t`."""
    [found] = consumer.committed([TopicPartition("t", partition)], WAIT_S)
    return found.offset


def restart(broker: BrokerProcess) -> int:
    """Kill the broker and start it again; where its log goes on."""
    broker.kill()
    told = len(broker.log())
    broker.start()
    return told


def until_quiet(members: Iterable[Watched]) -> None:
    """Poll until nobody was given anything for a while: the last to hear of a generation may hear of it now."""
    members, heard = list(members), -1
    while heard != (heard := sum(len(one.assigned) for one in members)):
        poll_until([one.consumer for one in members], after(seconds=1.5))


def poll_until(consumers: list[Consumer], done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline, "the group did not come to where it should"
        for consumer in consumers:
            consumer.poll(0.05)


KINDS: dict[str, list[dict[str, str]]] = {
    "static": [{"group.instance.id": "i0"}, {"group.instance.id": "i1"}],
    "dynamic": [{}, {}],
    "cooperative": [{"partition.assignment.strategy": "cooperative-sticky"}] * 2,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_goes_on_in_its_generation_after_the_broker_was_killed(file_broker: BrokerProcess, kind: str) -> None:
    """Nobody joins again: the members' next heartbeats and commits are good, be they static (KIP-345) or not."""
    make_topic(file_broker, "t", 4)
    members = [Watched(file_broker, **settings) for settings in KINDS[kind]]
    until_shared(members, [2, 2])
    until_quiet(members)
    commit(members, 7)
    before = [one.assigned.copy() for one in members]

    told = restart(file_broker)

    commit(members, 8)
    poll_until([one.consumer for one in members], after(seconds=1.5))  # some heartbeats more
    assert [one.assigned for one in members] == before
    assert REBALANCE not in file_broker.log()[told:]
    assert [position(members[0].consumer, partition) for partition in range(4)] == [8, 8, 8, 8]
    for one in members:
        one.consumer.close()


def after(seconds: float) -> Callable[[], bool]:
    """True once so much time is over."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def test_a_static_member_finds_its_place_in_the_broker_that_came_back(file_broker: BrokerProcess) -> None:
    """KIP-345: it was restarted, too; it gets its partitions back, and the other member hears nothing of it."""
    make_topic(file_broker, "t", 4)
    stays, goes = members = [Watched(file_broker, **settings) for settings in KINDS["static"]]
    until_shared(members, [2, 2])
    until_quiet(members)
    place, before = goes.held, stays.assigned.copy()
    goes.consumer.close()  # a static member does not leave

    told = restart(file_broker)

    back = Watched(file_broker, **KINDS["static"][1])
    until_shared([stays, back], [2, 2])
    assert back.held == place
    assert stays.assigned == before
    assert REBALANCE not in file_broker.log()[told:]
    for one in (stays, back):
        one.consumer.close()


def test_who_died_with_the_broker_is_missed_once_its_session_is_over(start_broker: StartBroker) -> None:
    """Sessions start over when the log has been read: nobody is dropped early, and nobody stays for ever."""
    broker = start_broker(files=True, settings=QUICK)
    make_topic(broker, "t", 4)
    lives, dies = members = [Watched(broker, **{"session.timeout.ms": 4000}) for _ in range(2)]
    until_shared(members, [2, 2])
    told = restart_without(broker, dies)
    until_shared([lives], [4])
    assert "sent no heartbeat for" in broker.log()[told:]
    lives.consumer.close()


def restart_without(broker: BrokerProcess, dead: Watched) -> int:
    """Kill the broker, and while it is away a member that can then not tell it; where the log goes on."""
    broker.kill()
    told = len(broker.log())
    dead.consumer.close()
    broker.start()
    return told


def test_a_broker_killed_in_the_middle_of_a_rebalance_gets_all_members_together(file_broker: BrokerProcess) -> None:
    """Who had joined and who had not is memory only: the group is as it was before, and everybody joins again."""
    make_topic(file_broker, "t", 4)
    first = Watched(file_broker)
    until_shared([first], [4])
    second = Watched(file_broker)
    members = [first, second]
    deadline = time.monotonic() + WAIT_S
    while file_broker.log().count(REBALANCE) < 1:  # it waits for the first member, who does not poll
        assert time.monotonic() < deadline, "the second member's Join did not come"
        second.consumer.poll(0.1)
    assert (first.held, second.held) == ({0, 1, 2, 3}, set())

    restart(file_broker)

    until_shared(members, [2, 2])
    assert first.held | second.held == {0, 1, 2, 3}
    for one in members:
        one.consumer.close()


def test_generations_go_on_though_everybody_had_left(file_broker: BrokerProcess) -> None:
    """An empty group is remembered with its generation: an old member's commit cannot fit a new one by chance."""
    make_topic(file_broker, "t", 1)

    def generation() -> int:
        with closing(KafkaConsumer("t", bootstrap_servers=file_broker.address, group_id="g")) as consumer:
            consumer.partitions_for_topic("t")  # see tests/interop/members/with_kafka_python.py
            deadline = time.monotonic() + WAIT_S
            while not consumer.assignment():
                assert time.monotonic() < deadline, "no assignment"
                consumer.poll(timeout_ms=100)
            return int(consumer.group_metadata().generation_id)

    before = generation()
    restart(file_broker)
    assert generation() > before


def test_positions_of_a_transaction_without_an_end_go_when_its_time_is_over(start_broker: StartBroker) -> None:
    """Its timeout runs on after the restart; until then the position is unstable (T6), then it is the old one."""
    broker = start_broker(files=True, settings=QUICK)
    make_topic(broker, "t", 1)
    reader = member(broker, "g", **{"isolation.level": "read_committed"})
    reader.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    producer = Producer(
        {"bootstrap.servers": broker.address, "transactional.id": "x", "transaction.timeout.ms": 10_000, "log_level": 0}
    )
    began = time.monotonic()
    begin_with_position(producer, reader, 5)

    told = restart(broker)

    assert is_unstable(reader) or time.monotonic() - began > 10
    assert position(reader) == 1
    assert "aborted after its timeout of 10000 ms" in broker.log()[told:]
    reader.close()


def begin_with_position(producer: Producer, reader: Consumer, offset: int) -> None:
    """Leave a transaction open that holds a record and a position."""
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("t", b"v", partition=0)
    producer.flush(WAIT_S)
    producer.send_offsets_to_transaction([TopicPartition("t", 0, offset)], reader.consumer_group_metadata(), WAIT_S)


def is_unstable(reader: Consumer) -> bool:
    """Whether a reader of committed positions is kept waiting (UNSTABLE_OFFSET_COMMIT; it tries again by itself)."""
    try:
        reader.committed([TopicPartition("t", 0)], 1.0)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._TIMED_OUT:
            raise
        return True
    return False


@pytest.mark.parametrize("commits", [True, False])
def test_positions_of_an_open_transaction_share_its_fate_after_the_broker_was_killed(
    file_broker: BrokerProcess, commits: bool
) -> None:
    make_topic(file_broker, "t", 1)
    reader = member(file_broker, "g", **{"isolation.level": "read_committed"})
    reader.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    producer = Producer({"bootstrap.servers": file_broker.address, "transactional.id": "x", "log_level": 0})
    begin_with_position(producer, reader, 5)

    restart(file_broker)

    assert is_unstable(reader)
    if commits:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)
    assert position(reader) == (5 if commits else 1)
    reader.close()
