"""Partitions move between cores while clients work (KIP-455): nothing is lost, doubled, torn or out of order."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Assigned

from fencepost.broker.cores.handed_logs import MOVED_OFFSETS, handed_name
from fencepost.broker.log.storage.checkpoints import encode_offsets, load_topic_id
from fencepost.broker.log.storage.files import FileStore
from fencepost.coordinator.partitioning import partition_for
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import GROUP_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC, TopicPartition
from fencepost.sync import Client
from tests.kit.broker_process import BrokerProcess
from tests.kit.cores_broker import GROUP, Cores, wire_to
from tests.kit.cores_moves import move, ongoing, reassign
from tests.kit.waiting import until

CORES = 3
PARTITIONS = 3
ROUNDS = 20
GROUP_ID, TRANSACTIONAL_ID = "readers", "mover"
INTERNAL = {GROUP_TOPIC: 3, TRANSACTION_TOPIC: 3, SHARE_STATE_TOPIC: 3}
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
}


@pytest.fixture
def cores(tmp_path: Path) -> Iterator[Cores]:
    broker = BrokerProcess(tmp_path / "work", data_dir=tmp_path / "data", settings=SETTINGS, cores=CORES)
    with broker:
        yield Cores(broker)


class Load:
    """Clients that work until they are stopped, each in a thread."""

    def __init__(self, address: str, topic: str) -> None:
        self.address, self.topic = address, topic
        self.stopped = threading.Event()
        self.acknowledged: list[bytes] = []
        self.committed: list[bytes] = []
        self.read: list[tuple[int, int]] = []
        """Partition and offset of each record that the group was given, in order."""
        self.accepted: Counter[bytes] = Counter()

    def produce(self) -> None:
        """Idempotent, by librdkafka."""
        producer = Producer({"bootstrap.servers": self.address, "enable.idempotence": True, "linger.ms": 1})
        number = 0

        def delivered(error: KafkaError | None, message: Any) -> None:
            assert error is None, error
            self.acknowledged.append(message.value())

        while not self.stopped.is_set():
            producer.produce(self.topic, b"c-%d" % number, partition=number % PARTITIONS, on_delivery=delivered)
            number += 1
            if number % 20 == 0:
                producer.poll(0.005)
        assert producer.flush(60) == 0

    def produce_by_own(self) -> None:
        number = 0
        with Client(self.address) as kafka, kafka.producer() as producer:
            while not self.stopped.is_set():
                value = b"o-%d" % number
                producer.send(self.topic, value, partition=number % PARTITIONS)
                self.acknowledged.append(value)
                number += 1

    def transact(self) -> None:
        """Each transaction writes to all partitions, by librdkafka; one of four is aborted."""
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": TRANSACTIONAL_ID})
        retried(producer.init_transactions)
        number = 0
        while not self.stopped.is_set():
            values = [b"t-%d-%d" % (number, partition) for partition in range(PARTITIONS)]
            producer.begin_transaction()
            for partition, value in enumerate(values):
                producer.produce(self.topic, value, partition=partition)
            if number % 4 == 3:
                retried(producer.abort_transaction)
            else:
                retried(producer.commit_transaction)
                self.committed += values
            number += 1

    def transact_by_own(self) -> None:
        number = 0
        with Client(self.address) as kafka, kafka.transactional_producer(f"{TRANSACTIONAL_ID}-own") as producer:
            while not self.stopped.is_set():
                values = [b"w-%d-%d" % (number, partition) for partition in range(PARTITIONS)]
                with producer.transaction() as txn:
                    for partition, value in enumerate(values):
                        txn.send(self.topic, value, partition=partition)
                self.committed += values
                number += 1

    def consume(self) -> None:
        """In a group that commits."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": GROUP_ID,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self.topic])
        while not self.stopped.is_set():
            for message in consumer.consume(500, 0.2):
                if not message.error():
                    self.read.append((message.partition(), message.offset()))
            with suppress(
                KafkaException
            ):  # nothing to commit yet, or a coordinator that moves: the next commit has all
                consumer.commit(asynchronous=False)
        consumer.close()

    def share(self) -> None:
        """A member of a share group accepts each message."""
        with Client(self.address) as kafka, kafka.queue(self.topic, group="sharing") as queue:
            for message in queue:
                message.accept()
                assert message.value is not None
                self.accepted[message.value] += 1
                if self.stopped.is_set():
                    break

    def run(self, moves: Callable[[], None], *clients: Callable[[], None]) -> None:
        """Move while clients work. What fails in any of them fails here."""
        with ThreadPoolExecutor() as pool:
            working = [pool.submit(client) for client in clients]
            try:
                until(lambda: self.acknowledged)
                moves()
            finally:
                self.stopped.set()
            for one in working:
                one.result(120)

    def check(self, cores: Cores) -> None:
        """Every acknowledged record once, and of transactions the committed ones; each producer's in order."""
        consumer = Consumer(
            {"bootstrap.servers": self.address, "group.id": "check", "isolation.level": "read_committed"}
        )
        consumer.assign([Assigned(self.topic, number, 0) for number in range(PARTITIONS)])
        expected = Counter(self.acknowledged) + Counter(self.committed)
        found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        deadline = time.monotonic() + 60
        while sum(map(len, found)) < expected.total() and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.5):
                if not message.error():
                    found[message.partition()].append(message.value())
        consumer.close()
        assert Counter(value for values in found for value in values) == expected
        for values in found:
            for kind in {value[:1] for value in values}:
                numbers = [int(value.split(b"-")[1]) for value in values if value[:1] == kind]
                assert numbers == sorted(numbers), kind


def retried(call: Callable[[float], None]) -> None:
    """As programs of librdkafka have to."""
    for _ in range(20):
        try:
            call(20)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return
    raise AssertionError(f"{call} was tried in vain")


def test_a_busy_topic_moves_back_and_forth(cores: Cores) -> None:
    """KIP-455, KIP-98: idempotent producers, transactions and a group's members, by two clients."""
    leaders = cores.create("busy", PARTITIONS)
    load = Load(cores.broker.address, "busy")

    def moves() -> None:
        until(lambda: load.read and load.committed)
        for number in range(ROUNDS):
            partition = number % PARTITIONS
            leaders[partition] = (leaders[partition] + 1 + number % 2) % CORES
            move(cores, {TopicPartition("busy", partition): leaders[partition]})
        move(cores, {TopicPartition("busy", number): 0 for number in range(PARTITIONS)})
        before = len(load.read)
        until(lambda: {partition for partition, _ in load.read[before:]} == set(range(PARTITIONS)))

    load.run(moves, load.produce, load.produce_by_own, load.transact, load.transact_by_own, load.consume)
    load.check(cores)


def test_internal_topics_move_under_their_clients(cores: Cores) -> None:
    """Groups, transactions and share groups go on at their coordinators' new cores (KIP-98, KIP-848, KIP-932)."""
    cores.create("busy", PARTITIONS)
    address = cores.broker.address
    with Client(address) as kafka, kafka.admin() as admin:
        admin.incremental_alter_configs({"share.auto.offset.reset": "earliest"}, group="sharing")
    load, chance = Load(address, "busy"), random.Random(7)

    def moves() -> None:
        until(lambda: load.accepted and load.read and load.committed)
        for _ in range(ROUNDS):
            topic = chance.choice(sorted(INTERNAL))
            wanted = {TopicPartition(topic, number): chance.randrange(CORES) for number in range(INTERNAL[topic])}
            move(cores, wanted)
        before = len(load.read), len(load.committed), len(load.accepted)
        until(lambda: all(now > was for now, was in zip(progress(load), before, strict=True)))

    load.run(moves, load.produce, load.transact, load.transact_by_own, load.consume, load.share)
    load.check(cores)
    partition = partition_for(GROUP_ID, INTERNAL[GROUP_TOPIC])
    assert cores.coordinator(GROUP_ID, GROUP) == cores.leaders(GROUP_TOPIC)[partition]


def progress(load: Load) -> tuple[int, int, int]:
    return len(load.read), len(load.committed), len(load.accepted)


def test_a_move_waits_for_its_core_and_can_be_cancelled(cores: Cores) -> None:
    """A reassignment to a broker that does not answer stays under way, as in Kafka; the old leader serves."""
    leaders = cores.create("waiting", 1)
    tp, source = TopicPartition("waiting", 0), leaders[0]
    target = next(core for core in (1, 2) if core != source)
    cores.broker.signal_core(target, SIGSTOP)
    try:
        asked = 3 - target if source == 0 else 0
        assert reassign(cores, {tp: [target]}, asked) == {tp: ErrorCode.NONE}
        assert ongoing(cores, asked) == {tp: ([target, source], [target], [source])}
        with Client(cores.broker.address) as kafka, kafka.producer() as producer:
            producer.send("waiting", b"served")
        assert cores.leaders("waiting", asked) == [source]
        assert reassign(cores, {tp: None}, asked) == {tp: ErrorCode.NONE}
        assert ongoing(cores, asked) == {}
        assert reassign(cores, {tp: None}, asked) == {tp: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    finally:
        cores.broker.signal_core(target, SIGCONT)
    move(cores, {tp: target})
    with Client(cores.broker.address) as kafka, kafka.consumer("waiting") as consumer:
        assert [record.value for batch in consumer.read_to_end() for record in batch] == [b"served"]


@pytest.mark.parametrize("asked", range(CORES))
def test_what_cannot_be_is_refused_by_every_core(cores: Cores, asked: int) -> None:
    """ReplicationControlManager.alterPartitionReassignments; the metadata log never moves."""
    cores.create("here", 1)
    here, nowhere = TopicPartition("here", 0), TopicPartition("nowhere", 0)
    log = TopicPartition("__cluster_metadata", 0)
    invalid, unknown = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for targets in ([], [0, 1], [7], [1, 1]):
        assert reassign(cores, {here: targets}, asked) == {here: invalid}
    assert reassign(cores, {nowhere: [1], log: [1]}, asked) == {nowhere: unknown, log: unknown}
    assert ongoing(cores, asked) == {}


def test_a_topic_that_is_made_again_during_its_move_has_only_its_own_records(cores: Cores) -> None:
    """The directory under way belongs to the topic's id."""
    for number in range(12):
        leaders = cores.create("again", 1)
        with Client(cores.broker.address) as kafka:
            with kafka.producer() as producer:
                producer.send("again", b"old-%d" % number)
            assert reassign(cores, {TopicPartition("again", 0): [(leaders[0] + 1 + number % 2) % CORES]})
            time.sleep(0.004 * (number % 6))
            with kafka.admin() as admin:
                admin.delete_topics("again")
            cores.create("again", 1)
            with kafka.producer() as producer:
                producer.send("again", b"new-%d" % number)
            with kafka.consumer("again") as consumer:
                assert [record.value for batch in consumer.read_to_end() for record in batch] == [b"new-%d" % number]
            with kafka.admin() as admin:
                admin.delete_topics("again")
    data = cores.broker.data_dir
    assert data is not None
    until(
        lambda: [path.name for path in data.rglob("again*") if not path.name.endswith("-delete")], lambda left: not left
    )


def test_a_source_that_dies_after_the_hand_over_begins_no_second_log(cores: Cores) -> None:
    """Until the move has ended no core coordinates the groups (GroupCoordinatorService.onResignation)."""
    broker, source, target = cores.broker, 1, 2
    cores.create("read", 1)
    group = cores.name_at(source, GROUP)
    tp = TopicPartition(GROUP_TOPIC, partition_for(group, INTERNAL[GROUP_TOPIC]))
    assert commit(cores, source, group, 7) is ErrorCode.NONE
    broker.signal_core(source, SIGSTOP)  # so that the controller is frozen before it is asked to end the move
    assert reassign(cores, {tp: [target]}) == {tp: ErrorCode.NONE}
    broker.signal_core(0, SIGSTOP)
    try:
        broker.signal_core(source, SIGCONT)
        until(lambda: f"handed over partition={tp}" in broker.log())
        broker.kill_core(source)
        broker.wait_for_core(source)
        assert commit(cores, source, group, 1) is ErrorCode.NOT_COORDINATOR
    finally:
        broker.signal_core(0, SIGCONT)
    until(lambda: ongoing(cores), lambda found: not found)
    assert cores.coordinator(group, GROUP) == target
    with Client(broker.address) as kafka, kafka.admin() as admin:
        offsets = admin.list_group_offsets(group)
    assert offsets[TopicPartition("read", 0)].offset == 7
    assert broker.data_dir is not None
    assert len(list(broker.data_dir.rglob(f"{tp}*"))) == 1


def commit(cores: Cores, core: int, group: str, offset: int) -> ErrorCode:
    with wire_to(cores.broker, core) as wire:
        return wire.commit_offsets(group, "read", offset)


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_start_with_other_cores_ends_moves_that_were_under_way(cores: Cores, after: int) -> None:
    """To a core that is gone the move is given up; otherwise it goes on."""
    broker = cores.broker
    cores.create("left", 6)
    with Client(broker.address) as kafka, kafka.producer() as producer:
        for number in range(60):
            producer.send("left", b"%d" % number, partition=number % 6)
    broker.signal_core(2, SIGSTOP)
    wanted = {TopicPartition("left", number): [2] for number, core in enumerate(cores.leaders("left")) if core != 2}
    assert set(reassign(cores, wanted).values()) == {ErrorCode.NONE}
    assert len(ongoing(cores)) == 4
    broker.kill()
    broker.cores = after
    broker.start()
    again = Cores(broker)
    if after > 1:
        until(lambda: ongoing(again), lambda left: not left)
        if after == CORES:
            assert set(again.leaders("left")) == {2}
    with Client(broker.address) as kafka, kafka.consumer("left") as consumer:
        found = [record.value for batch in consumer.read_to_end() for record in batch]
    assert sorted(found) == sorted(b"%d" % number for number in range(60))


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_start_finds_a_log_that_was_handed_over_when_all_died(cores: Cores, after: int) -> None:
    """Its leader by the metadata takes it, wherever it is, whatever the number of cores is now."""
    broker = cores.broker
    leaders = cores.create("handed", 3)
    with Client(broker.address) as kafka, kafka.producer() as producer:
        for number in range(30):
            producer.send("handed", b"%d" % number, partition=number % 3)
    broker.kill()
    data = broker.data_dir
    assert data is not None
    places = [data, data / "cores" / "1", data / "cores" / "2"]
    for number, core in enumerate(leaders):
        tp = TopicPartition("handed", number)
        files = FileStore(places[core]).child(str(tp))
        files.replace(MOVED_OFFSETS, encode_offsets({}, exact=True))
        (places[core] / str(tp)).rename(places[(core + 1) % 3] / handed_name(tp, load_topic_id(files)))
    broker.cores = after
    broker.start()
    with Client(broker.address) as kafka, kafka.consumer("handed") as consumer:
        found = [record.value for batch in consumer.read_to_end() for record in batch]
    assert sorted(found) == sorted(b"%d" % number for number in range(30))
    assert not list(data.rglob("*-moving"))
