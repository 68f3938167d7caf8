"""A real broker compacts a client's topic and its own `__consumer_offsets` (rows L4, L5, G8), and outlives kill -9."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until

WAIT_S = 100.0
PARTITIONS = 100
"""A commit of so many positions is one batch of several KiB."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that looks for dirty logs all the time."""
    process = BrokerProcess(
        tmp_path / "work",
        data_dir=tmp_path / "data",
        settings={
            "durability": "os",
            "log.cleaner.backoff.ms": "100",
            "log.cleaner.min.cleanable.ratio": "0.1",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.segment.bytes": str(1 << 20),
        },
    )
    with process:
        yield process


def log_bytes(broker: BrokerProcess, partition: str) -> int:
    """Bytes of batches on disk that still count; a file may be renamed while they are counted."""
    assert broker.data_dir is not None
    total = 0
    for path in (broker.data_dir / partition).glob("*.log*"):
        if path.suffix == ".deleted":
            continue
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def table(broker: BrokerProcess, topic: str) -> dict[str, str]:
    """What a reader of committed data knows after it has read the topic from the beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[str, str] = {}
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None, "the broker went silent"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            consumer.close()
            return found
        found.pop(message.key().decode(), None)
        if message.value() is not None:
            found[message.key().decode()] = message.value().decode()


def write(broker: BrokerProcess, topic: str) -> dict[str, str]:
    """Plain and transactional writes, aborted ones among them, and tombstones; what should be left."""
    expected: dict[str, str] = {}
    plain = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True, "linger.ms": 5})
    teller = Producer({"bootstrap.servers": broker.address, "transactional.id": "teller"})
    teller.init_transactions(WAIT_S)
    for turn in range(40):
        for number in range(40):
            plain.produce(topic, key=f"k{number}", value=f"{turn}:{'x' * 50}")
        plain.flush(WAIT_S)
        expected.update((f"k{number}", f"{turn}:{'x' * 50}") for number in range(40))
        teller.begin_transaction()
        for number in range(5):
            teller.produce(topic, key=f"k{turn + number}", value=f"t{turn}")
        if turn % 2:
            teller.abort_transaction(WAIT_S)
        else:
            teller.commit_transaction(WAIT_S)
            expected.update((f"k{turn + number}", f"t{turn}") for number in range(5))
    for number in range(10):
        plain.produce(topic, key=f"k{number}", value=None)
        expected.pop(f"k{number}", None)
    plain.flush(WAIT_S)
    return expected


def verify(broker: BrokerProcess) -> None:
    """What compaction has left is sound in every file."""
    broker.stop()
    command = [sys.executable, "-m", "fencepost", "verify", str(broker.data_dir)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_a_topic_shrinks_and_a_reader_sees_the_same(broker: BrokerProcess) -> None:
    """L4, L5: the table is the same before and after compaction, and after a crash in its midst or after it."""
    config = {"cleanup.policy": "compact", "internal.segment.bytes": "30000", "delete.retention.ms": "0"}
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(WAIT_S)
    expected = write(broker, "t")
    written_bytes = 40 * 40 * 60
    until(lambda: log_bytes(broker, "t-0") < written_bytes // 2, what="the topic was not compacted")
    assert table(broker, "t") == expected
    broker.kill()
    broker.start()
    assert table(broker, "t") == expected
    verify(broker)


def test_committed_offsets_are_compacted_and_right_after_a_restart(broker: BrokerProcess) -> None:
    """G8: a group that commits often does not fill the disk, and its last positions are those that count."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(WAIT_S)
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g", "enable.auto.commit": False})
    peak = 0
    for turn in range(450):
        offsets = [TopicPartition("t", number, turn * 10 + number) for number in range(PARTITIONS)]
        consumer.commit(offsets=offsets, asynchronous=False)
        peak = max(peak, log_bytes(broker, "__consumer_offsets-0"))
    assert peak > 1 << 20, "not even one segment was filled"
    until(lambda: log_bytes(broker, "__consumer_offsets-0") < 1 << 20, what="the offsets were not compacted")
    expected = {number: 4490 + number for number in range(PARTITIONS)}
    everything = [TopicPartition("t", number) for number in range(PARTITIONS)]
    assert {tp.partition: tp.offset for tp in consumer.committed(everything, WAIT_S)} == expected
    consumer.close()
    broker.kill()
    broker.start()
    again = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    assert {tp.partition: tp.offset for tp in again.committed(everything, WAIT_S)} == expected
    again.close()
    verify(broker)
