"""Backups of running cores: each transaction over partitions of all cores is whole in each of them."""

from collections import defaultdict
from contextlib import AbstractContextManager
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fencepost import sync
from fencepost.cli.backup import cut
from fencepost.cli.main import cli
from fencepost.protocol.topics import TRANSACTION_TOPIC, TopicPartition
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import verify, whom_to_ask
from tests.kit.cores_broker import Cores
from tests.kit.cores_moves import ask_for, reassign, wait_for
from tests.kit.until_stopped import Undone, UntilStopped
from tests.kit.waiting import until

PARTITIONS, PRODUCERS, ABORTED_EACH = 6, 4, 5
MOVE_SECONDS = 0.2
BACKUPS = 3


class Producers:
    """Each writes the same value into all partitions in each of its transactions, and aborts some."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.committed: list[list[bytes]] = [[] for _ in range(PRODUCERS)]
        self._threads = UntilStopped()

    def running(self, cores: Cores) -> AbstractContextManager[None]:
        works = [partial(self._produce, number) for number in range(PRODUCERS)]
        return self._threads.running(*works, partial(self._move, cores))

    def _move(self, cores: Cores) -> None:
        """Partitions go from core to core meanwhile, those of the coordinators, too."""
        chance = Random(1)
        places = [TopicPartition(*one) for one in product(("t", TRANSACTION_TOPIC), range(PARTITIONS))]
        while not self._threads.stopped.wait(MOVE_SECONDS):
            reassign(cores, {chance.choice(places): [chance.choice(cores.numbers)]})

    def _produce(self, number: int) -> None:
        count = 0
        with sync.Client(self._address) as kafka, kafka.transactional_producer(f"producer-{number}") as producer:
            while not self._threads.stopped.is_set():
                count += 1
                value = b"%d-%d" % (number, count)
                try:
                    with producer.transaction() as transaction:
                        for partition in range(PARTITIONS):
                            transaction.send("t", value, partition=partition)
                        if count % ABORTED_EACH == 0:
                            raise Undone
                except Undone:
                    continue
                self.committed[number].append(value)


def backup(broker: BrokerProcess, directory: Path, target: Path) -> Result:
    return CliRunner().invoke(cli, ["backup", str(directory), str(target), *whom_to_ask(broker)])


def committed_in(address: str) -> dict[bytes, int]:
    """In how many partitions each value is, for a reader of committed records."""
    found: dict[bytes, int] = defaultdict(int)
    with sync.Client(address) as kafka:
        for number in range(PRODUCERS):  # ends what was open
            with kafka.transactional_producer(f"producer-{number}"):
                pass
        with kafka.consumer() as consumer:
            consumer.assign([TopicPartition("t", number) for number in range(PARTITIONS)])
            for batch in consumer.read_to_end():
                for record in batch:
                    found[record.value] += 1
    return found


@pytest.mark.timeout(600)
def test_transactions_are_whole_in_each_backup(tmp_path: Path) -> None:
    """KIP-98: a reader gets all of a transaction or nothing. What was committed before the backup is in it."""
    backups: list[tuple[Path, list[list[bytes]]]] = []
    with BrokerProcess(tmp_path / "broker", data_dir=tmp_path / "data", cores=3) as broker:
        with sync.Client(broker.address) as kafka, kafka.admin() as admin:
            admin.create_topics("t", partitions=PARTITIONS)
        producers = Producers(broker.address)
        with producers.running(Cores(broker)):
            for number in range(BACKUPS):
                before = [list(values) for values in producers.committed]
                until(lambda before=before: all(map(len, producers.committed)) and producers.committed != before)
                before = [list(values) for values in producers.committed]
                target = tmp_path / f"backup-{number}"
                done = backup(broker, tmp_path / "data", target)
                assert done.exit_code == 0, done.output
                backups.append((target, before))
        refused = backup(broker, tmp_path / "data" / "cores" / "1", tmp_path / "of-one-core")
        assert (refused.exit_code, "the directory of one core" in refused.stderr) == (1, True)
        broker.kill()
    for number, (source, before) in enumerate(backups):
        restored = tmp_path / f"restored-{number}"
        assert CliRunner().invoke(cli, ["restore", str(source), str(restored)]).exit_code == 0
        checked = verify(restored)
        assert checked.returncode == 0, checked.stdout
        cores = 1 + (number + 2) % 3
        with BrokerProcess(tmp_path / f"again-{number}", data_dir=restored, cores=cores) as broker:
            found = committed_in(broker.address)
        assert {value: count for value, count in found.items() if count != PARTITIONS} == {}
        assert [value for values in before for value in values if value not in found] == []


def test_the_number_of_cores_may_change_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that has gone cannot say the ends of its logs: those that have them now do."""
    broker = BrokerProcess(tmp_path / "broker", data_dir=tmp_path / "data", cores=3)
    with broker, sync.Client(broker.address) as kafka, kafka.admin() as admin:
        admin.create_topics("t", partitions=PARTITIONS)
        cores = Cores(broker)
        pin = cut.pin

        def pin_and_change(*arguments: Any) -> None:
            pin(*arguments)
            if broker.cores == 3:
                assert ask_for(cores, 2) is None
                wait_for(cores, 2)
                broker.cores = 2

        monkeypatch.setattr(cut, "pin", pin_and_change)
        done = backup(broker, tmp_path / "data", tmp_path / "backup")
        assert (done.exit_code, broker.cores) == (0, 2), done.output
