"""The number of cores changes between two starts: no record is lost or copied, and no epoch falls."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from fencepost.broker.log.storage.lock import DirectoryInUse, all_locked
from fencepost.broker.log.verify.report import Report
from fencepost.broker.metadata.reader import MetadataReader
from fencepost.broker.verification import verify
from fencepost.coordinator.txn import codec
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.records import decode_records
from fencepost.protocol.topics import TopicPartition
from fencepost.sync import Client
from tests.kit.broker_process import BrokerProcess
from tests.kit.consecutive_ports import reserve_consecutive
from tests.kit.waiting import until

LONG = "long-" + "n" * 240
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "5"))
"""How many starts are killed; more by hand."""
LONGEST_START_SECONDS = 3.0
TOPICS = {"plain": 6, "compacted": 3, LONG: 2, "single": 1}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(
        tmp_path / "work",
        data_dir=tmp_path / "data",
        settings={
            "transaction.two.phase.commit.enable": "true",
            "unstable.api.versions.enable": "true",
            "group.initial.rebalance.delay.ms": "0",
        },
    )
    broker.port = reserve_consecutive(broker, broker.host, 3)
    yield broker
    if broker.running:
        broker.kill()


class Story:
    """What clients have written, and must read after each start."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.values: dict[str, list[bytes]] = {name: [] for name in TOPICS}
        self.read_by_group = 0
        self.prepared: str | None = None
        self.accepted: set[bytes | None] = set()
        self.epochs: dict[TopicPartition, int] = {}

    def client(self) -> Client:
        return Client(self.broker.address)

    def create(self) -> None:
        with self.client() as kafka, kafka.admin() as admin:
            for name, count in TOPICS.items():
                policy = {"cleanup.policy": "compact"} if name == "compacted" else None
                admin.create_topics(name, partitions=count, configs=policy)
            admin.incremental_alter_configs(
                {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}, group="sharing"
            )

    def write(self, round_number: int) -> None:
        """Plain records, transactions that commit and abort, one that is prepared and decided in the next round."""
        with self.client() as kafka:
            with kafka.producer() as producer:
                for name in TOPICS:
                    for number in range(8):
                        value = b"%d-%d" % (round_number, number)
                        producer.send(name, value, key=b"%d-%d" % (round_number, number))
                        self.values[name].append(value)
            with kafka.transactional_producer("mover") as producer:
                with producer.transaction() as txn:
                    for name in TOPICS:
                        value = b"%d-committed" % round_number
                        txn.send(name, value, key=value)
                        self.values[name].append(value)
                with suppress(ZeroDivisionError), producer.transaction() as txn:
                    for name in TOPICS:
                        txn.send(name, b"%d-aborted" % round_number, key=b"aborted")
                    producer.flush()
                    raise ZeroDivisionError
            with kafka.two_phase_producer("two-phase") as two:
                txn = two.transaction().__enter__()  # its end would commit it
                for name in TOPICS:
                    value = b"%d-prepared" % round_number
                    txn.send(name, value, key=value)
                    self.values[name].append(value)
                self.prepared = str(txn.prepare())
            with kafka.transactional_producer("left open") as producer:
                txn = producer.transaction().__enter__()
                for name in TOPICS:
                    txn.send(name, b"%d-open" % round_number, key=b"open")
                producer.flush()
            with kafka.admin() as admin:
                admin.create_topics("again", partitions=4)
            with kafka.producer() as producer:
                for number in range(8):
                    producer.send("again", b"%d" % round_number, key=b"%d" % number)
            self.take(kafka)

    def take(self, kafka: Client) -> None:
        """A share group accepts some messages, none of them twice."""
        with kafka.queue("plain", group="sharing") as queue:
            for message in queue:
                assert message.value not in self.accepted
                assert b"aborted" not in (message.value or b"")
                message.accept()
                self.accepted.add(message.value)
                if len(self.accepted) % 5 == 0:
                    break

    def delete_again(self) -> None:
        with self.client() as kafka, kafka.admin() as admin:
            admin.delete_topics("again")

    def check(self) -> None:
        """Every record once, none of an aborted transaction; the group goes on where it was."""
        with self.client() as kafka:
            with kafka.two_phase_producer("two-phase") as two:
                if self.prepared is not None:
                    assert two.prepared is not None
                    assert two.complete(self.prepared)
                    self.prepared = None
            with kafka.transactional_producer("left open"):
                pass  # aborts the transaction that its predecessor left open
            for name, expected in self.values.items():
                with kafka.consumer(name) as consumer:
                    found = [record.value for batch in consumer.read_to_end() for record in batch]
                assert sorted(found) == sorted(expected), name
            with kafka.consumer("plain", group="readers") as consumer:
                new = [record.value for batch in consumer.read_to_end() for record in batch]
                consumer.commit()
            assert len(new) == len(self.values["plain"]) - self.read_by_group
            self.read_by_group += len(new)
            self.take(kafka)
        self.check_epochs()

    def check_epochs(self) -> None:
        assert self.broker.data_dir is not None
        image = MetadataReader(self.broker.data_dir).image()
        for name, topic in image.topics_by_name.items():
            for number, one in enumerate(topic.assignment):
                tp = TopicPartition(name, number)
                if name != "again":
                    assert one.leader_epoch >= self.epochs.get(tp, 0)
                    self.epochs[tp] = one.leader_epoch
                assert 1 <= one.leader <= self.broker.cores
        assert image.brokers.keys() == set(range(1, self.broker.cores + 1))

    def verify(self) -> None:
        assert self.broker.data_dir is not None
        report = Report()
        verify(self.broker.data_dir, report)
        assert not report.damaged, report.findings


@pytest.mark.parametrize("unclean", [False, True], ids=["stopped", "killed"])
def test_one_three_two_one(broker: BrokerProcess, unclean: bool) -> None:
    """1 -> 3 -> 2 -> 1 cores: records, offsets of groups, open and prepared transactions are there after each start."""
    story = Story(broker)
    broker.cores = 1
    broker.start()
    story.create()
    for number, cores in enumerate((3, 2, 1, 2)):
        story.write(number)
        if unclean:
            broker.kill()
        else:
            assert broker.stop() == 0
        story.verify()
        broker.cores = cores
        broker.start()
        story.check()
        story.delete_again()
    assert broker.stop() == 0
    story.verify()


def is_free(data: Path) -> bool:
    """Whether no process has a lock in the data directory."""
    try:
        with all_locked(data, shared=True):
            return True
    except DirectoryInUse:
        return False


def test_starts_that_are_killed_lose_nothing(broker: BrokerProcess) -> None:
    """kill -9 of all processes at any moment of a start, each time with another number of cores."""
    chance = random.Random("cores")
    story = Story(broker)
    broker.cores = 1
    broker.start()
    story.create()
    story.write(0)
    broker.kill()
    for _ in range(ROUNDS):
        broker.cores = chance.choice([1, 2, 3])
        with broker.log_path.open("ab") as log:
            started = subprocess.Popen(broker.command(), stdout=log, stderr=log, start_new_session=True)
        time.sleep(chance.uniform(0.5, LONGEST_START_SECONDS))
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        until(partial(is_free, broker.data_dir), seconds=300)  # a killed thread may still wait for the disk
    broker.cores = 3
    broker.start()
    story.check()
    assert broker.stop() == 0
    story.verify()


def test_an_outcome_that_only_a_marker_knows_survives_the_move(broker: BrokerProcess) -> None:
    """Decision 0080: a power cut kept a marker, and neither the decision nor the other marker.

    Afterwards the coordinator and the two partitions are on different cores. A reader may have seen the commit.
    """
    assert broker.data_dir is not None
    broker.cores = 1
    broker.start()
    partitions = [TopicPartition("plain", number) for number in range(6)]
    with Client(broker.address) as kafka:
        with kafka.admin() as admin:
            admin.create_topics("plain", partitions=6)
        with kafka.transactional_producer("torn") as producer, producer.transaction() as txn:
            for tp in partitions:
                txn.send(tp.topic, b"%d" % tp.partition, partition=tp.partition)
    broker.kill()
    assert sum(_cut_decision(path) for path in broker.data_dir.glob("__transaction_state-*/*.log")) == 1
    for tp in partitions[1:]:
        _cut_marker(broker.data_dir / str(tp) / f"{0:020d}.log")
    broker.cores = 3
    broker.start()
    with Client(broker.address) as kafka, kafka.consumer("plain") as consumer:
        found = sorted(record.value for batch in consumer.read_to_end() for record in batch)
    assert found == [b"%d" % tp.partition for tp in partitions]
    assert "from 1 to 3 after an unclean end" in broker.log()


def _cut_decision(path: Path) -> bool:
    """Cut a coordinator's log in front of the decision, if it has one."""
    data = path.read_bytes()
    for position, header in iter_headers(data):
        decoded = [codec.decode(one.key, one.value) for one in decode_records(data, position, header)]
        if any("PrepareCommit" in repr(one) for one in decoded):
            os.truncate(path, position)
            return True
    return False


def _cut_marker(path: Path) -> None:
    data = path.read_bytes()
    os.truncate(path, next(position for position, header in iter_headers(data) if header.is_control))
