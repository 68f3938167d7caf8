"""The number of cores changes while clients work: no record is lost or copied, also if all die in between."""

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from fencepost.sync import Client
from tests.kit.broker_process import BrokerProcess
from tests.kit.consecutive_ports import reserve_consecutive
from tests.kit.cores_broker import Cores
from tests.kit.cores_load import PARTITIONS, Load
from tests.kit.cores_moves import ask_for, ongoing, reassign, wait_for
from tests.kit.waiting import until

MOST = 4
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "5"))
"""How many changes are killed; more by hand."""
LONGEST_CHANGE_SECONDS = 3.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}


@pytest.fixture
def cores(tmp_path: Path) -> Iterator[Cores]:
    broker = BrokerProcess(tmp_path / "work", data_dir=tmp_path / "data", settings=SETTINGS, cores=2)
    broker.port = reserve_consecutive(broker, broker.host, MOST)
    with broker:
        yield Cores(broker)


def segments(cores: Cores, topic: str) -> dict[tuple[str, str], int]:
    """The inode of each segment of a topic."""
    assert cores.broker.data_dir is not None
    found = cores.broker.data_dir.rglob(f"{topic}-*/*.log")
    return {(path.parent.name, path.name): path.stat().st_ino for path in found}


def change(cores: Cores, count: int, asked: int = 0) -> None:
    assert ask_for(cores, count, asked) is None
    wait_for(cores, count)
    cores.broker.cores = max(count, 2)  # there are processes to end, also if only one serves


def test_there_and_back_under_load(cores: Cores) -> None:
    """KIP-98, KIP-848, KIP-932: idempotent producers, transactions, a group and a share group go on."""
    cores.create("busy", PARTITIONS)
    load = Load(cores.broker.address, "busy")
    with Client(cores.broker.address) as kafka, kafka.admin() as admin:
        admin.incremental_alter_configs({"share.auto.offset.reset": "earliest"}, group="sharing")

    def moves() -> None:
        until(lambda: load.read and load.committed and load.accepted)
        before = segments(cores, "busy")
        assert len(before) == PARTITIONS
        for count in (3, MOST, 2, 1, 3):
            change(cores, count, asked=1 if count == MOST else 0)
            led = Counter(cores.leaders("busy"))
            assert led.keys() <= set(range(count))
            assert max(led.values()) == max(-(-PARTITIONS // count), 1 if count > 1 else PARTITIONS)
            progress = [len(one) for one in (load.read, load.committed, load.accepted)]
            until(lambda was=progress: all(map(int.__lt__, was, map(len, (load.read, load.committed, load.accepted)))))
        assert segments(cores, "busy").items() >= before.items()

    clients = (load.produce, load.produce_by_own, load.transact, load.transact_by_own, load.consume, load.share)
    load.run(moves, *clients)
    load.check(cores)
    assert cores.broker.stop() == 0
    assert "Traceback" not in cores.broker.log()


def test_core_0_and_a_new_core_die_in_between(cores: Cores) -> None:
    """What is wanted outlives the process of core 0."""
    cores.create("plain", 6)
    for count, killed in ((4, 0), (2, 0), (4, 2), (2, 3), (3, 1)):
        assert ask_for(cores, count) is None
        time.sleep(0.3)
        cores.broker.kill_core(killed)
        wait_for(cores, count)
        cores.broker.cores = count
        with Client(cores.broker.address) as kafka, kafka.producer() as producer:
            for number in range(6):
                producer.send("plain", b"%d-%d" % (count, number), partition=number)
        led = Counter(cores.leaders("plain"))
        assert led.keys() <= set(range(count))


def test_a_start_goes_on_after_all_died_in_between(cores: Cores) -> None:
    """kill -9 at any moment of a change. The next start has a number of its own, which may be another one."""
    chance = random.Random("number")
    broker = cores.broker
    cores.create("plain", 6)
    written: list[bytes] = []
    count = 2
    for round_number in range(ROUNDS):
        with Client(broker.address) as kafka, kafka.producer() as producer:
            for number in range(12):
                written.append(b"%d-%d" % (round_number, number))
                producer.send("plain", written[-1], partition=number % 6)
        count = chance.choice([one for one in range(1, MOST + 1) if one != count])
        assert ask_for(cores, count) is None
        time.sleep(chance.uniform(0, LONGEST_CHANGE_SECONDS))
        broker.kill()
        broker.cores = count = chance.randint(2, MOST)
        broker.start()
        wait_for(cores, count)
        with Client(broker.address) as kafka, kafka.consumer("plain") as consumer:
            found = [record.value for batch in consumer.read_to_end() for record in batch]
        assert sorted(found) == sorted(written)


def test_a_change_replaces_one_that_is_under_way(cores: Cores) -> None:
    """A move to a core that is no longer wanted is given up; back to more cores, topics are spread again."""
    broker = cores.broker
    cores.create("plain", 6)
    change(cores, 3)
    wanted = {TopicPartition("plain", number): [1] for number in range(6) if cores.leaders("plain")[number] != 1}
    broker.signal_core(1, SIGSTOP)
    assert set(reassign(cores, wanted).values()) == {ErrorCode.NONE}
    assert len(ongoing(cores)) == len(wanted) == 4
    assert ask_for(cores, 1) is None
    until(lambda: ongoing(cores), lambda left: all(target == [0] for _, target, _ in left.values()))
    assert ask_for(cores, 3) is None
    broker.kill_core(1)
    wait_for(cores, 3)
    assert set(Counter(cores.leaders("plain")).values()) == {2}


def test_what_cannot_be_is_refused(cores: Cores, tmp_path: Path) -> None:
    """A port that is taken, more processes than a client may have started, a broker without a supervisor."""
    port = cores.broker.port + 2
    with socket.create_server((cores.broker.host, port)):
        problem = ask_for(cores, 3)
    assert problem is not None
    assert problem.startswith(f"core 2 would need port {port}, and cannot listen there: ")
    assert problem.endswith("; free this port, or name fewer cores")
    assert str(ask_for(cores, 10_000)).startswith("10000 cores are more than ")
    assert ask_for(cores, 0) == "0 cores cannot serve: at least 1 is needed"
    with BrokerProcess(tmp_path / "one", data_dir=tmp_path / "one", cores=1) as one:
        assert "start it with --cores 3" in str(ask_for(Cores(one), 3))


def command(broker: BrokerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "fencepost", "cluster", "cores", *words, "--timeout", "60"]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_the_command_waits_for_the_end(cores: Cores) -> None:
    broker = cores.broker
    leaders = cores.create("plain", 6)
    assert Counter(leaders) == {0: 3, 1: 3}
    done = command(broker, "3", "--bootstrap", broker.address)
    assert (done.returncode, done.stdout) == (0, "The broker runs on 3 cores.\n")
    assert Counter(cores.leaders("plain")) == {0: 2, 1: 2, 2: 2}
    done = command(broker, "2", "--bootstrap", f"{broker.host}:{broker.port + 2}", "--json")  # by a core that stops
    assert (done.returncode, json.loads(done.stdout)) == (0, {"cores": 2})
    with socket.create_server((broker.host, broker.port + 3)):
        done = command(broker, "4", "--bootstrap", broker.address)
    assert done.returncode == 1
    assert f"core 3 would need port {broker.port + 3}" in done.stderr


def test_the_command_waits_for_a_core_0_that_starts_again(cores: Cores) -> None:
    """A crash of any core loses nothing: the change goes on (decision 0089)."""
    broker = cores.broker
    os.kill(broker.pid, SIGSTOP)  # so that the supervisor starts no core yet
    broker.kill_core(0)
    line = [sys.executable, "-m", "fencepost", "cluster", "cores", "3", "--timeout", "60"]
    words = ["--bootstrap", f"{broker.host}:{broker.port + 1}"]
    with subprocess.Popen([*line, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asked:
        assert asked.stderr is not None
        assert "changing the number of cores has failed" in asked.stderr.readline()
        os.kill(broker.pid, SIGCONT)
        said, _ = asked.communicate()
    assert (asked.returncode, said) == (0, "The broker runs on 3 cores.\n")


def test_the_command_gives_up_after_its_timeout_and_the_change_goes_on(cores: Cores) -> None:
    broker = cores.broker
    os.kill(broker.pid, SIGSTOP)  # so that the supervisor starts no core yet
    line = [sys.executable, "-m", "fencepost", "cluster", "cores", "3", "--timeout", "3", "--bootstrap", broker.address]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, "the change to 3 cores takes longer than 3 s, and continues" in done.stderr) == (1, True)
    os.kill(broker.pid, SIGCONT)
    wait_for(cores, 3)
    broker.cores = 3
