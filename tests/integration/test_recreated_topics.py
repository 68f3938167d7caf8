"""A topic that is deleted and created again under its name: nothing of the old one counts for the new one."""

from fencepost.protocol.record_batch import build_batch
from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command
from tests.kit.waiting import until
from tests.kit.wire import NOW_MS, Wire, records_in

LARGE = b"x" * 400_000
SETTINGS = {"log.cleaner.backoff.ms": "50", "durability": "os", "log.segment.bytes": str(1 << 20)}
COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_bytes": str(1 << 20)}


def write(wire: Wire, key: bytes, *values: bytes | None) -> None:
    """Records of one key, each in a batch of its own."""
    for value in values:
        wire.produce("accounts", build_batch([(NOW_MS, key, value, ())]))


def values(broker: BrokerProcess, key: bytes) -> list[bytes | None]:
    """All records of a key that are still in the log."""
    found, offset = [], 0
    with Wire(broker.connect()) as wire:
        while records := records_in(wire.fetch("accounts", offset)):
            found += [record.value for record in records if record.key == key and record.offset >= offset]
            offset = records[-1].offset + 1
    return found


def cleaner_offset(broker: BrokerProcess) -> int:
    """The cleaner's offset of the partition in the checkpoint file."""
    assert broker.data_dir is not None
    file = broker.data_dir / "cleaner-offset-checkpoint"
    rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return next((int(row[2]) for row in rows if row[:2] == ["accounts", "0"]), 0)


def test_a_value_below_the_deleted_topics_cleaner_offset_is_compacted(start_broker: StartBroker) -> None:
    """Seen: it counted as clean, its tombstone was dropped after delete.retention.ms, and the key was back.

    Kafka removes a deleted partition's cleaner offset from the checkpoint (LogCleanerManager.updateCheckpoints).
    """
    broker = start_broker(files=True, settings=SETTINGS)
    with Wire(broker.connect()) as wire:
        wire.create_topic("accounts", **COMPACTED)
        write(wire, b"k", *[LARGE] * 6)
        until(lambda: cleaner_offset(broker) >= 3)
        recreate(broker, wire)
        write(wire, b"account", b"secret", None)
        write(wire, b"k", *[b"small"] * 8)
    broker.stop()
    broker.start()
    with Wire(broker.connect()) as wire:
        write(wire, b"k", *[LARGE] * 6)
    until(lambda: b"secret" not in values(broker, b"account"), what="the deleted key's value was never compacted")


def recreate(broker: BrokerProcess, wire: Wire) -> None:
    """Delete the topic, and create it again."""
    assert command(broker, "topic", "delete", "accounts").exit_code == 0
    wire.create_topic("accounts", **COMPACTED)


def test_a_new_log_is_not_offline_because_the_deleted_one_was_longer(start_broker: StartBroker) -> None:
    """A place that no report names: the deleted topic's recovery point survives a kill in its checkpoint file.

    Kafka skips checkpoint entries of partitions that it does not host (LogManager.loadLogs).
    """
    broker = start_broker(files=True, settings=SETTINGS)
    with Wire(broker.connect()) as wire:
        wire.create_topic("accounts", **COMPACTED)
        write(wire, b"k", *[b"old"] * 8)
    broker.stop()  # writes the recovery point
    broker.start()
    assert command(broker, "topic", "delete", "accounts").exit_code == 0
    broker.restart()
    with Wire(broker.connect()) as wire:
        wire.create_topic("accounts", **COMPACTED)
        write(wire, b"k", b"new", b"new")
    broker.restart()
    assert values(broker, b"k") == [b"new", b"new"]
