"""Upkeep that fails on one log: the broker goes on, the other logs have theirs, and metrics and commands say which."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from fencepost.cli.main import cli
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command
from tests.kit.scraping import scrape
from tests.kit.unreadable import unreadable
from tests.kit.waiting import until
from tests.kit.wire import Wire

SETTINGS = {"log.cleaner.backoff.ms": "50", "durability": "os"}
UNCLEANABLE = "kafka_log_logcleanermanager_uncleanable_partitions_count"
DUE = ("min.cleanable.dirty.ratio=0.01", "max.compaction.lag.ms=1", "cleanup.policy=compact")


def write(wire: Wire, topic: str, count: int) -> None:
    """Records of one key, each in a batch of its own."""
    for number in range(count):
        wire.produce(topic, build_batch([(int(time.time() * 1000), b"k", b"%d" % number, ())]))


def count_of(broker: BrokerProcess, name: str) -> float:
    """The value of a metric's only sample."""
    return next((value for sample, value in scrape(broker).items() if sample.startswith(name)), 0.0)


@pytest.mark.parametrize("size_bytes", [200, 9000])
def test_a_batch_that_cannot_be_unpacked_does_not_end_the_broker_and_other_logs_are_cleaned(
    start_broker: StartBroker, size_bytes: int
) -> None:
    """Seen with 9 kB of noise on a topic that became compacted: the broker stopped, and again after each start.

    Kafka marks such a partition uncleanable (LogCleanerManager.markPartitionUncleanable) and cleans the others.
    """
    broker = start_broker(files=True, settings=SETTINGS, arguments=["--metrics", "127.0.0.1:0"])
    assert broker.data_dir is not None
    with Wire(broker.connect()) as wire:
        wire.create_topic("noise")
        wire.create_topic("fine")
        wire.produce("noise", unreadable(int(time.time() * 1000), size_bytes=size_bytes))
        for topic in ("noise", "fine"):
            write(wire, topic, 5)
            for setting in DUE:
                assert command(broker, "config", "set", "topic", topic, setting).exit_code == 0
    for _ in range(2):
        until(lambda: count_of(broker, UNCLEANABLE) == 1.0)
        until(lambda: cleaned(broker.data_dir, "fine"))
        with Wire(broker.connect()) as wire:
            write(wire, "noise", 1)
        broker.stop()
        broker.start()
        with Wire(broker.connect()) as wire:
            for topic in ("noise", "fine"):  # opens the log
                write(wire, topic, 2)
    until(lambda: count_of(broker, UNCLEANABLE) == 1.0)
    marked = 'fencepost_upkeep_failing{partition="0",topic="noise",work="compaction"}'
    assert {name for name in scrape(broker) if name.startswith("fencepost_upkeep_failing")} == {marked}
    assert scrape(broker)['fencepost_upkeep_failures_total{work="compaction"}'] == 1
    assert "partition is uncleanable and is not compacted until a restart partition=noise-0" in broker.log()
    said = CliRunner().invoke(cli, ["log", "dump", str(broker.data_dir / "noise-0")]).output
    assert "noise-0 is uncleanable, its last compaction failed: " in said
    assert "uncleanable" not in CliRunner().invoke(cli, ["log", "dump", str(broker.data_dir / "fine-0")]).output
    assert broker.stop() == 0


def cleaned(directory: Path | None, topic: str) -> bool:
    """Whether the cleaner has an offset of this topic's partition."""
    assert directory is not None
    file = directory / "cleaner-offset-checkpoint"
    return file.exists() and any(line.startswith(f"{topic} 0 ") for line in file.read_text().splitlines())


def test_more_clients_than_descriptors_take_none_from_the_logs(start_broker: StartBroker) -> None:
    """Seen with `ulimit -n 256` and 300 idle connections: writes to new partitions failed, and the broker ended.

    The connections above what the limit leaves beside the files are closed, as those above max.connections.
    """
    broker = start_broker(files=True, launcher=["prlimit", "--nofile=256:256"])
    with Wire(broker.connect()) as wire, ExitStack() as idle:
        wire.create_topic("t", partitions=64)
        for _ in range(300):
            idle.enter_context(broker.connect())
        until(lambda: "because of its limit of open files" in broker.log() or "Too many open files" in broker.log())
        for partition in range(64):
            answer = wire.produce("t", build_batch([(1, b"k", b"v", ())]), partition=partition)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert "Too many open files" not in broker.log()
    assert broker.stop() == 0
