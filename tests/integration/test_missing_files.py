"""Segments, directories and metadata that are missing or damaged: the broker asks before it goes on without them.

Kafka's `LogLoader` (`core/.../log/LogLoader.scala`) takes the first segment that exists as the start of the log. It has
replicas to compare with; here the files are the only copy.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.broker.log.storage.checkpoints import RECOVERY_POINTS
from fencepost.broker.log.storage.layout import ACCEPT_LOSS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest
from tests.kit.broker_process import BrokerFailed, BrokerProcess
from tests.kit.command_line import command, verify
from tests.kit.sasl_broker import LISTEN, LISTENERS, add_scram_users, connect, scram_login
from tests.kit.wire import Wire, batch_of, records_in

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
BATCHES = 12
DELETE_TOPICS = 20


def fill(broker: BrokerProcess, topic: str) -> None:
    """A batch of ten records in each segment."""
    with Wire(broker.connect()) as wire:
        wire.create_topic(topic, internal_segment_bytes="300")
        for number in range(BATCHES):
            values = (b"%03d" % (10 * number + n) for n in range(10))
            assert wire.produce(topic, batch_of(*values)).error_code == ErrorCode.NONE


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a broker left after an orderly stop: one topic of several segments, and one that was never written."""
    work_dir = tmp_path_factory.mktemp("template")
    with BrokerProcess(work_dir, data_dir=work_dir / "data", settings=SETTINGS) as broker:
        fill(broker, "plain")
        with Wire(broker.connect()) as wire:
            wire.create_topic("unwritten")
        assert broker.stop() == 0
    assert len(segments(work_dir / "data")) == BATCHES
    return work_dir / "data"


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def start(data: Path, tmp_path: Path) -> Iterator[Callable[[], BrokerProcess]]:
    """Start the broker on `data`."""
    broker = BrokerProcess(tmp_path / "work", data_dir=data, settings=SETTINGS)
    yield broker.start
    broker.__exit__(None, None, None)


def segments(data: Path, name: str = "plain-0") -> list[Path]:
    return sorted((data / name).glob("*.log"))


def readable(broker: BrokerProcess, topic: str = "plain", offset: int = 0) -> list[int] | ErrorCode:
    """The offsets from `offset` on that a client reads, or the error."""
    found: list[int] = []
    with Wire(broker.connect()) as wire:
        while True:
            answer = wire.fetch(topic, offset)
            if answer.error_code:
                return ErrorCode(answer.error_code)
            records = [record.offset for record in records_in(answer)]
            if not records:
                return found
            found += records
            offset = records[-1] + 1


def lose(path: Path) -> None:
    for file in path.parent.glob(f"{path.stem}.*"):
        if file.suffix != ".snapshot":
            file.unlink()


@pytest.mark.parametrize("number", [0, 5], ids=["first", "middle"])
def test_a_missing_segment_is_not_served_as_a_hole(data: Path, start: Callable[[], BrokerProcess], number: int) -> None:
    gone = segments(data)[number]
    gone.unlink()
    told = verify(data)
    assert told.returncode == 1, told.stdout
    assert "damage: plain-0" in told.stdout
    broker = start()
    assert readable(broker) is ErrorCode.KAFKA_STORAGE_ERROR
    assert "plain-0 is damaged and offline" in broker.log()
    assert ACCEPT_LOSS in broker.log()
    with Wire(broker.connect()) as wire:
        assert wire.produce("plain", batch_of(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert wire.produce("unwritten", batch_of(b"x")).error_code == ErrorCode.NONE
    assert broker.stop() == 0
    (data / "plain-0" / ACCEPT_LOSS).touch()
    left = list(range(10, 10 * BATCHES)) if number == 0 else list(range(10 * number))
    assert readable(start(), offset=left[0]) == left
    broker.kill()
    assert readable(start(), offset=left[0]) == left, "accepted once, and for good"
    assert broker.stop() == 0
    assert verify(data).returncode == 0


def test_a_missing_directory_is_not_made_anew_and_empty(data: Path, start: Callable[[], BrokerProcess]) -> None:
    shutil.rmtree(data / "plain-0")
    told = verify(data)
    assert (told.returncode, "plain-0: is missing" in told.stdout) == (1, True)
    broker = start()
    assert "plain-0 is damaged and offline" in broker.log(), "at the start, before a client asks"
    assert readable(broker) is ErrorCode.KAFKA_STORAGE_ERROR
    with Wire(broker.connect()) as wire:
        assert wire.produce("plain", batch_of(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert wire.produce("unwritten", batch_of(b"x")).error_code == ErrorCode.NONE, "this one never had a directory"
    assert not (data / "plain-0").exists()
    assert broker.stop() == 0
    start()
    assert readable(broker) is ErrorCode.KAFKA_STORAGE_ERROR, "the stop has not forgotten it"
    assert broker.stop() == 0
    (data / "plain-0").mkdir()
    (data / "plain-0" / ACCEPT_LOSS).touch()
    start()
    with Wire(broker.connect()) as wire:
        assert wire.produce("plain", batch_of(b"new")).error_code == ErrorCode.NONE
    broker.kill()
    assert readable(start()) == [0]


@pytest.mark.parametrize("left", ["no directory", "a directory that a crash left"])
def test_a_topic_made_again_needs_no_acceptance(
    template: Path, data: Path, start: Callable[[], BrokerProcess], left: str
) -> None:
    """The name of a topic made again is in older checkpoints, and it has no directory before its first batch."""
    if left == "no directory":
        shutil.rmtree(data / "plain-0")
    broker = start()
    with Wire(broker.connect()) as wire:
        request = DeleteTopicsRequest(topic_names=["plain"], timeout_ms=10_000)
        assert wire.call(DELETE_TOPICS, 5, request).responses[0].error_code == ErrorCode.NONE
        if left == "no directory":
            wire.create_topic("plain")
    broker.kill()
    if left != "no directory":
        shutil.copytree(template / "plain-0", data / "plain-0")
        shutil.copy(template / RECOVERY_POINTS, data)
        start()
        with Wire(broker.connect()) as wire:
            wire.create_topic("plain")
        broker.kill()
    start()
    assert readable(broker) == []
    assert broker.log().count("is damaged and offline") == (left == "no directory"), "only before it was deleted"
    with Wire(broker.connect()) as wire:
        assert wire.produce("plain", batch_of(b"x")).error_code == ErrorCode.NONE


def test_a_partition_that_is_a_link_is_served_verified_and_deleted(
    data: Path, tmp_path: Path, start: Callable[[], BrokerProcess]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (data / "plain-0").rename(elsewhere)
    (data / "plain-0").symlink_to(elsewhere)
    assert f"{10 * BATCHES} records" in verify(data, "--topic", "plain").stdout.replace(",", "")
    broken = sorted(elsewhere.glob("*.log"))[3]
    before = broken.read_bytes()
    broken.write_bytes(before[:-1] + b"?")
    assert verify(data).returncode == 1
    broken.write_bytes(before)
    broker = start()
    assert readable(broker) == list(range(10 * BATCHES))
    with Wire(broker.connect()) as wire:
        request = DeleteTopicsRequest(topic_names=["plain"], timeout_ms=10_000)
        assert wire.call(DELETE_TOPICS, 5, request).responses[0].error_code == ErrorCode.NONE
    assert broker.stop() == 0
    assert not (data / "plain-0").is_symlink()
    assert not os.listdir(elsewhere)
    assert [path.name for path in data.iterdir() if path.name.endswith("-delete")] == []


def test_a_segment_that_is_a_link_is_damage_to_verify_and_offline_in_the_broker(
    data: Path, tmp_path: Path, start: Callable[[], BrokerProcess]
) -> None:
    moved = segments(data)[2]
    moved.rename(tmp_path / moved.name)
    moved.symlink_to(tmp_path / moved.name)
    told = verify(data)
    assert (told.returncode, "is a link" in told.stdout) == (1, True), told.stdout + told.stderr
    assert readable(start()) is ErrorCode.KAFKA_STORAGE_ERROR


SCRAM = "SCRAM-SHA-512"


@pytest.mark.parametrize("loss", ["a flipped bit", "no directory"])
def test_lost_metadata_brings_back_no_deleted_user_unasked(tmp_path: Path, loss: str) -> None:
    """A bit in the metadata log cut all after it: an old password was valid again. So is it without the directory."""
    data = tmp_path / "data"
    settings = {**SETTINGS, **LISTENERS}
    with BrokerProcess(tmp_path / "work", data_dir=data, settings=settings, arguments=LISTEN) as broker:
        add_scram_users(broker, alice="first")
        log = segments(data, "__cluster_metadata-0")[0]
        before = len(batches_in(log))
        add_scram_users(broker, alice="second")
        assert broker.stop() == 0
        saved = tmp_path / "saved"
        shutil.copytree(data, saved)
        if loss == "no directory":
            shutil.rmtree(data / "__cluster_metadata-0")
        else:
            flip(log, batches_in(log)[before] + 40)
        with pytest.raises(BrokerFailed, match="the metadata log is damaged"):
            broker.start()
        (data / "__cluster_metadata-0").mkdir(exist_ok=True)
        (data / "__cluster_metadata-0" / ACCEPT_LOSS).touch()
        broker.start()
        assert (data / "__cluster_metadata-0.damaged1-stray").is_dir()
        assert broker.stop() == 0
        shutil.rmtree(data)
        saved.rename(data)
        broker.start()
        with connect(broker) as wire:
            assert scram_login(wire, SCRAM, "alice", "second") == ErrorCode.NONE, "restored"


def batches_in(log: Path) -> list[int]:
    """The position of each batch."""
    data, position, found = log.read_bytes(), 0, list[int]()
    while data[position + 16 : position + 17] == b"\x02":
        found.append(position)
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found


def flip(path: Path, position: int) -> None:
    """Flip one bit."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_checksum_error_that_a_client_sees_is_in_the_brokers_log(
    data: Path, start: Callable[[], BrokerProcess]
) -> None:
    """Every client failed, and the broker's log had nothing."""
    damaged = segments(data)[4]
    flip(damaged, 70)
    broker = start()
    for _ in range(2):
        done = command(broker, "consume", "plain", "--offset", "beginning", "--exit")
        assert (done.exit_code, "CRC" in done.stderr) == (1, True), done.output
    assert broker.log().count(f"{damaged} is damaged at byte 0, offset 40: the batch's CRC-32C") == 1
