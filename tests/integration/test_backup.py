"""`fencepost backup` of a broker that transacts, compacts and begins segments; and `fencepost restore`."""

import json
import os
import random
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

from fencepost import RetriableError, sync
from fencepost.broker.log.storage.layout import core_directories
from fencepost.cli.backup import cut
from fencepost.cli.main import cli
from fencepost.client.admin import Admin
from fencepost.protocol.topics import TopicPartition
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import verify, whom_to_ask
from tests.kit.until_stopped import Undone, UntilStopped
from tests.kit.waiting import until
from tests.kit.wire import Wire, batch_of

BUSY = {
    "log.segment.bytes": str(1 << 20),
    "log.roll.ms": "1000",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "0",
}
"""Segments begin and are compacted all the time, but not so often that a busy machine cannot link them in between."""
PARTITIONS, KEYS, BATCH = 2, 5, 20
ABORTED = 0.25


class Load:
    """A writer, a transform that copies exactly once, and a writer of keys, until it is stopped."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.written: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        """Acknowledged values, by their offsets."""
        self.newest: dict[bytes, int] = {}
        """The newest acknowledged value of each key."""
        self.copied = self.aborted = 0
        self._threads = UntilStopped()

    def running(self) -> AbstractContextManager[None]:
        return self._threads.running(self._write, self._copy, self._count)

    def _write(self) -> None:
        number = 0
        with sync.Client(self.address) as kafka, kafka.producer() as producer:
            while not self._threads.stopped.is_set():
                for partition in range(PARTITIONS):
                    values = [b"%d" % (number + one) + bytes(50) for one in range(10)]
                    producer.send_many("in", [(None, value) for value in values], partition=partition)
                    self.written[partition] += values
                    number += len(values)

    def _copy(self) -> None:
        chance = random.Random(1)
        with (
            sync.Client(self.address) as kafka,
            kafka.transactional_producer("copier", transaction_timeout=60) as producer,
            kafka.consumer("in", group="copiers") as consumer,
        ):
            for batch in consumer.batches(max_records=BATCH):
                if self._threads.stopped.is_set():
                    return
                try:
                    with producer.transaction() as transaction:
                        for record in batch:
                            transaction.send("out", record.value, partition=chance.randrange(PARTITIONS))
                        transaction.send_offsets(consumer)
                        if chance.random() < ABORTED:
                            raise Undone
                except Undone:
                    self.aborted += 1
                else:
                    self.copied += len(batch)

    def _count(self) -> None:
        number = 0
        with sync.Client(self.address) as kafka, kafka.producer() as producer:
            while not self._threads.stopped.is_set():
                number += 1
                key = b"key-%d" % (number % KEYS)
                producer.send("newest", b"%d" % number, key=key)
                self.newest[key] = number


def backup(broker: BrokerProcess, target: Path, *words: str) -> Result:
    assert broker.data_dir is not None
    return CliRunner().invoke(cli, ["backup", str(broker.data_dir), str(target), *whom_to_ask(broker), *words])


def restore(source: Path, directory: Path) -> Result:
    return CliRunner().invoke(cli, ["restore", str(source), str(directory)])


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory on another file system, to which no hard link leads."""
    place = Path("/dev/shm") / f"fencepost-{uuid.uuid4().hex}"
    place.mkdir()
    yield place
    shutil.rmtree(place)


def last_segment(data: Path, log: str) -> str:
    """The name of the segment that a log began last, on whatever core."""
    return max(path.name for core in core_directories(data).values() for path in (core / log).glob("*.log"))


def restored_under_load(
    tmp_path: Path, targets: Path, cores: int = 1, restored_on: Sequence[int] = (1,), **settings: str
) -> None:
    """Take backups while all runs, kill the broker, restore the last ones on these numbers of cores, and judge them."""
    expected: list[tuple[Path, dict[int, list[bytes]], dict[bytes, int]]] = []
    with BrokerProcess(tmp_path / "broker", data_dir=tmp_path / "data", settings=settings, cores=cores) as broker:
        with sync.Client(broker.address) as kafka, kafka.admin() as admin:
            admin.create_topics(["in", "out"], partitions=PARTITIONS)
            admin.create_topics("newest", partitions=1, configs={"cleanup.policy": "compact"})
        load = Load(broker.address)
        seen = f"{0:020}.log"
        with load.running():
            until(lambda: load.copied > 1000 and load.aborted > 3)
            for number in range(max(3, len(restored_on))):
                if "log.roll.ms" in settings:  # each backup is of logs that began segments since the last one
                    seen = until(lambda: last_segment(tmp_path / "data", "newest-0"), seen.__lt__)
                written = {partition: list(values) for partition, values in load.written.items()}
                newest = dict(load.newest)
                done = backup(broker, targets / f"backup-{number}", "--json")
                assert done.exit_code == 0, done.output
                copied = load.copied
                until(lambda copied=copied: load.copied > copied + 200)
                expected.append((targets / f"backup-{number}", written, newest))
        broker.kill()
    assert not (tmp_path / "data" / ".backup").exists()
    for number, (source, written, newest) in zip(restored_on, expected[-len(restored_on) :], strict=True):
        restored = tmp_path / f"restored-{number}"
        done = restore(source, restored)
        assert done.exit_code == 0, done.output
        checked = verify(restored)
        assert checked.returncode == 0, checked.stdout
        again = tmp_path / f"again-{number}"
        with BrokerProcess(again, data_dir=restored, settings=settings, cores=number) as broker:
            judge(broker.address, written, newest)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("durability", "linked"), [("fsync", True), ("os", False)])
def test_a_backup_under_load_is_one_instant(tmp_path: Path, elsewhere: Path, durability: str, linked: bool) -> None:
    """All that was acknowledged before is there; each committed transaction is whole; offsets fit the records."""
    restored_under_load(tmp_path, tmp_path if linked else elsewhere, durability=durability, **BUSY)


@pytest.mark.timeout(300)
def test_ends_of_different_instants_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge's own test: a backup of logs that were cut one after the other is no instant."""

    async def one_by_one(admin: Admin, brokers: Sequence[int], pause_ms: int) -> cut.Ends | None:
        ends = await together(admin, brokers, pause_ms)
        assert ends is not None
        for tp in sorted(ends):
            await trio.sleep(0.2)
            ends[tp] = (await admin.list_offsets(tp, isolation="read_uncommitted"))[tp].offset
        return ends

    together = cut.ends_of
    monkeypatch.setattr(cut, "ends_of", one_by_one)
    # A transaction whose markers were cut off, but not its beginning, stays open: its offsets cannot be read.
    faults = r"committed offsets|is there twice|is missing|is part of an open transaction"
    with pytest.raises((AssertionError, RetriableError), match=faults):
        restored_under_load(tmp_path, tmp_path, durability="os")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_backup_of_running_cores_is_one_instant(tmp_path: Path, durability: str) -> None:
    """Transactions over partitions of several cores are whole, also when another number of cores starts there."""
    restored_under_load(tmp_path, tmp_path, 3, (3, 1, 2), durability=durability, **BUSY)


@pytest.mark.timeout(300)
def test_ends_of_cores_that_did_not_pause_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge's own test, for cores that are asked one after the other."""

    async def one_by_one(admin: Admin, brokers: Sequence[int], pause_ms: int) -> cut.Ends | None:
        ends: cut.Ends = {}
        for broker in brokers:
            await trio.sleep(0.3)
            ends |= await together(admin, [broker], 0) or {}
        return ends

    together = cut.ends_of
    monkeypatch.setattr(cut, "ends_of", one_by_one)
    faults = r"committed offsets|is there twice|is missing|is part of an open transaction"
    with pytest.raises((AssertionError, RetriableError), match=faults):
        restored_under_load(tmp_path, tmp_path, 3, (3,), durability="os")


def judge(address: str, written: dict[int, list[bytes]], newest: dict[bytes, int]) -> None:
    """What is in the restored logs, against what was acknowledged before the backup."""
    with sync.Client(address) as kafka:
        with kafka.transactional_producer("copier"):  # aborts what was open
            pass
        with kafka.admin() as admin:
            committed = admin.list_group_offsets("copiers")
        given = {partition: read(kafka, "in", partition) for partition in range(PARTITIONS)}
        for partition, values in written.items():
            assert given[partition][: len(values)] == values, "an acknowledged record is missing"
        wanted = [value for p in range(PARTITIONS) for value in given[p][: committed[TopicPartition("in", p)].offset]]
        found = [value for partition in range(PARTITIONS) for value in read(kafka, "out", partition)]
        assert len(found) == len(set(found)), "a record is there twice"
        assert sorted(found) == sorted(wanted), "the output is that of the committed offsets"
        with kafka.consumer("newest") as consumer:
            left = {record.key: int(record.value) for batch in consumer.read_to_end() for record in batch}
        assert {key: value for key, value in newest.items() if left.get(key, 0) < value} == {}, "compaction lost a key"


def read(kafka: sync.Client, topic: str, partition: int) -> list[bytes]:
    with kafka.consumer() as consumer:
        consumer.assign([TopicPartition(topic, partition)])
        return [record.value for batch in consumer.read_to_end() for record in batch]


# Of a small directory


@pytest.fixture
def stopped(tmp_path: Path) -> BrokerProcess:
    """A broker that has a record and was stopped."""
    with BrokerProcess(tmp_path / "broker", data_dir=tmp_path / "data") as broker, Wire(broker.connect()) as wire:
        wire.create_topic("t")
        assert wire.produce("t", batch_of(b"kept")).error_code == 0
    return broker


def test_a_stopped_broker_is_not_asked(stopped: BrokerProcess, tmp_path: Path) -> None:
    done = backup(stopped, tmp_path / "backup")
    assert done.exit_code == 0, done.output
    assert restore(tmp_path / "backup", tmp_path / "restored").exit_code == 0
    with BrokerProcess(tmp_path / "again", data_dir=tmp_path / "restored") as broker:
        with Wire(broker.connect()) as wire:
            assert wire.produce("t", batch_of(b"more")).base_offset == 1
        refused = backup(stopped, tmp_path / "backup")
        assert (refused.exit_code, "exists already" in refused.stderr) == (1, True)


def test_the_broker_of_another_directory_is_refused(stopped: BrokerProcess, tmp_path: Path) -> None:
    stopped.start()
    with BrokerProcess(tmp_path / "other", data_dir=tmp_path / "other-data") as other:
        command = ["backup", str(stopped.data_dir), str(tmp_path / "backup"), "--bootstrap", other.address]
        done = CliRunner().invoke(cli, command)
    stopped.stop()
    assert done.exit_code == 1
    assert "belongs to cluster" in done.stderr
    assert not (tmp_path / "backup").exists()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize(
    ("damage", "file", "why"),
    [
        (flip, "t-0/00000000000000000000.log", "is damaged"),
        (cut_short, "t-0/00000000000000000000.log", "is damaged"),
        (Path.unlink, "t-0/partition.metadata", "is missing"),
        (Path.unlink, "backup.json", "it is no backup, or the backup was not finished"),
        (cut_short, "backup.json", "cannot be read"),
    ],
)
def test_a_damaged_backup_is_refused(
    stopped: BrokerProcess, tmp_path: Path, damage: Callable[[Path], object], file: str, why: str
) -> None:
    assert backup(stopped, tmp_path / "backup").exit_code == 0
    if damage is cut_short and file == "backup.json":
        damage(tmp_path / "backup" / file)  # its last line feed
    damage(tmp_path / "backup" / file)
    done = restore(tmp_path / "backup", tmp_path / "restored")
    assert (done.exit_code, why in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "restored").exists()


def test_nothing_is_restored_over_other_files_or_outside(stopped: BrokerProcess, tmp_path: Path) -> None:
    assert backup(stopped, tmp_path / "backup").exit_code == 0
    done = restore(tmp_path / "backup", tmp_path / "data")
    assert (done.exit_code, "is not empty" in done.stderr) == (1, True)
    manifest = json.loads((tmp_path / "backup" / "backup.json").read_text())
    manifest["files"]["../outside"] = manifest["files"]["t-0/partition.metadata"]
    (tmp_path / "backup" / "backup.json").write_text(json.dumps(manifest))
    done = restore(tmp_path / "backup", tmp_path / "restored")
    assert (done.exit_code, "outside of the backup" in done.stderr) == (1, True)
    assert not (tmp_path / "outside").exists()
