"""Partitions move between cores while clients work (KIP-455): nothing is lost, doubled, torn or out of order."""

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from fencepost.broker.cores.handed_logs import MOVED_OFFSETS, handed_name
from fencepost.broker.log.storage.checkpoints import encode_offsets, load_topic_id
from fencepost.broker.log.storage.files import FileStore
from fencepost.coordinator.partitioning import partition_for
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import GROUP_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC, TopicPartition
from fencepost.sync import Client
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import verify
from tests.kit.cores_broker import GROUP, Cores, wire_to
from tests.kit.cores_load import GROUP_ID, PARTITIONS, Load
from tests.kit.cores_moves import move, ongoing, reassign
from tests.kit.waiting import until

CORES = 3
ROUNDS = 20
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


@contextmanager
def handed_over(cores: Cores, source: int, target: int) -> Iterator[tuple[str, TopicPartition]]:
    """A group that committed offset 7, and its log on its way; core 0 is frozen before it is asked to end the move.

    Afterwards the move ends.
    """
    broker = cores.broker
    cores.create("read", 1)
    group = cores.name_at(source, GROUP)
    tp = TopicPartition(GROUP_TOPIC, partition_for(group, INTERNAL[GROUP_TOPIC]))
    assert commit(cores, source, group, 7) is ErrorCode.NONE
    broker.signal_core(source, SIGSTOP)
    assert reassign(cores, {tp: [target]}) == {tp: ErrorCode.NONE}
    broker.signal_core(0, SIGSTOP)
    try:
        broker.signal_core(source, SIGCONT)
        until(lambda: f"handed over partition={tp}" in broker.log())
        yield group, tp
    finally:
        broker.signal_core(0, SIGCONT)
    until(lambda: ongoing(cores), lambda found: not found)


def test_a_source_that_dies_after_the_hand_over_begins_no_second_log(cores: Cores) -> None:
    """Until the move has ended no core coordinates the groups (GroupCoordinatorService.onResignation)."""
    broker, source, target = cores.broker, 1, 2
    with handed_over(cores, source, target) as (group, tp):
        broker.kill_core(source)
        broker.wait_for_core(source)
        assert commit(cores, source, group, 1) is ErrorCode.NOT_COORDINATOR
    assert cores.coordinator(group, GROUP) == target
    with Client(broker.address) as kafka, kafka.admin() as admin:
        offsets = admin.list_group_offsets(group)
    assert offsets[TopicPartition("read", 0)].offset == 7
    assert broker.data_dir is not None
    assert len(list(broker.data_dir.rglob(f"{tp}*"))) == 1


def test_a_log_that_is_lost_on_its_way_does_not_begin_again(cores: Cores) -> None:
    """Its group would go on without its offsets: from the beginning, or behind what it has not read."""
    broker, source, target = cores.broker, 1, 2
    with handed_over(cores, source, target) as (group, tp):
        assert broker.data_dir is not None
        [directory] = broker.data_dir.rglob("*-moving")
        shutil.rmtree(directory)
    until(lambda: f"directory of its log is missing partition={tp}" in broker.log())
    until(lambda: commit(cores, target, group, 1), lambda code: code is not ErrorCode.NOT_COORDINATOR)
    assert commit(cores, target, group, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.stop() == 0
    broker.start()
    assert commit(cores, target, group, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE


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
    broker.stop()  # the checkpoint files have rows for these logs
    broker.start()
    broker.kill()
    data = broker.data_dir
    assert data is not None
    places = [data, data / "cores" / "1", data / "cores" / "2"]
    for number, core in enumerate(leaders):
        tp = TopicPartition("handed", number)
        files = FileStore(places[core]).child(str(tp))
        files.replace(MOVED_OFFSETS, encode_offsets({}, exact=True))
        (places[core] / str(tp)).rename(places[(core + 1) % 3] / handed_name(tp, load_topic_id(files)))
    checked = verify(data)
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count("on its way to another core") == 3
    broker.cores = after
    broker.start()
    with Client(broker.address) as kafka, kafka.consumer("handed") as consumer:
        found = [record.value for batch in consumer.read_to_end() for record in batch]
    assert sorted(found) == sorted(b"%d" % number for number in range(30))
    assert not list(data.rglob("*-moving"))
