"""A full disk (ENOSPC): writes hear KAFKA_STORAGE_ERROR, reads go on, and it heals by itself when space returns."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.protocol.errors import ErrorCode
from tests.kit.broker_process import BrokerProcess
from tests.kit.ready import ready
from tests.kit.small_disk import SmallDisk, small_disk, why_not
from tests.kit.waiting import until
from tests.kit.wire import Wire, batch_of, committed_values, produce_request, values_in

_REASON = why_not()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))

SIZE_BYTES = 24 << 20
READ_COMMITTED = 1
REFUSED = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
VALUE = bytes(200_000)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", SIZE_BYTES) as mounted:
        yield mounted


@pytest.fixture(params=["fsync", "os"])
def broker(tmp_path: Path, disk: SmallDisk, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    settings = {"durability": request.param, "log.segment.bytes": str(1 << 20)}
    where = {"data_dir": disk.path / "data", "arguments": ["--metrics", "127.0.0.1:0"]}
    with BrokerProcess(tmp_path / "broker", settings=settings, **where) as started:
        yield started


def commit_offset(wire: Wire, group: str, offset: int) -> ErrorCode:
    """A group's position, stored without members; with it goes a text that soon fills the page that is begun."""
    return wire.commit_offsets(group, "t", offset, version=7, metadata="m" * 3000)


def fill_up(wire: Wire, disk: SmallDisk) -> list[bytes]:
    """Write until the disk takes no more; the values that were acknowledged."""
    disk.fill(leave_bytes=1 << 20)
    kept = []
    for number in range(1000):
        value = b"%d" % number + VALUE
        answer = wire.produce("t", batch_of(value))
        if answer.error_code:
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            disk.fill()
            return kept
        kept.append(value)
    raise AssertionError("the disk did not get full")


def test_produce_is_refused_reads_go_on_and_writes_recover(broker: BrokerProcess, disk: SmallDisk) -> None:
    with Wire(broker.connect()) as wire:
        wire.create_topic("t")
        wire.create_topic("idle")
        kept = fill_up(wire, disk)
        for _ in range(3):
            assert wire.produce("t", batch_of(VALUE)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values_in(wire.fetch("t", partition_max_bytes=50 << 20)) == kept
        refused = wire.produce("idle", batch_of(VALUE))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR, "a new log cannot be founded either"
        status, facts = ready(broker.facts["metrics"])
        assert (status, list(facts["reasons"])) == (503, ["disk_full"])
        disk.free()
        assert ready(broker.facts["metrics"])[0] == 200
        assert wire.produce("t", batch_of(b"again")).base_offset == len(kept)
        assert wire.produce("idle", batch_of(b"again")).base_offset == 0
    broker.restart()
    with Wire(broker.connect()) as wire:
        assert values_in(wire.fetch("t", partition_max_bytes=50 << 20)) == [*kept, b"again"]


def test_transactions_and_group_commits_recover_without_a_restart(broker: BrokerProcess, disk: SmallDisk) -> None:
    """An EndTxn on a full disk is refused or waits; its markers are written when space is back (T8)."""
    with Wire(broker.connect()) as wire:
        wire.create_topic("t")
        wire.create_topic("x", partitions=2)
        producer = wire.init_producer_id("id")
        wire.add_partitions("id", producer, "x", 0, 1)
        for partition in range(2):
            batch = batch_of(
                b"committed", producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True
            )
            wire.send(0, 9, produce_request("x", batch, partition=partition, transactional_id="id"))
            assert wire.receive(0, 9)[1].responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert commit_offset(wire, "g", 1) is ErrorCode.NONE
        kept = fill_up(wire, disk)
        codes = [commit_offset(wire, "g", offset) for offset in range(2, 6)]
        assert set(codes) <= REFUSED | {ErrorCode.NONE}, "the page that is begun may take one more"
        assert codes[-1] in REFUSED
        for partition in range(2):
            assert fill_page(wire, "x", partition), "no room for a marker"
        ended = ErrorCode(wire.end_txn("id", producer, commit=True).error_code)
        assert ended in REFUSED | {ErrorCode.NONE}, "decided, where the page of its own log took the decision"
        assert _committed(wire, 0, wait_seconds=0) == []
        assert values_in(wire.fetch("t", partition_max_bytes=50 << 20)) == kept
        disk.free()
        assert commit_offset(wire, "g", 99) is ErrorCode.NONE
        assert wire.end_txn("id", producer, commit=True).error_code == ErrorCode.NONE
        for partition in range(2):
            assert _committed(wire, partition, wait_seconds=100)[0] == b"committed"
        assert wire.init_producer_id("id")[1] > producer[1]
        wire.create_topic("after")
    assert broker.stop() == 0
    assert "Traceback" not in broker.log()


def fill_page(wire: Wire, topic: str, partition: int) -> bool:
    """Write small batches until even the page that is begun is full; whether that came about."""
    return any(wire.produce(topic, batch_of(b""), partition=partition).error_code for _ in range(4096 // 61))


def _committed(wire: Wire, partition: int, wait_seconds: float) -> list[bytes | None]:
    """What a read_committed reader gets, once the marker is there."""
    deadline = time.monotonic() + wait_seconds
    while True:
        values = committed_values(wire.fetch("x", partition=partition, isolation=READ_COMMITTED))
        if values or time.monotonic() > deadline:
            return values
        time.sleep(0.05)


def test_a_stop_on_a_full_disk_is_not_called_clean_and_nothing_is_lost(broker: BrokerProcess, disk: SmallDisk) -> None:
    with Wire(broker.connect()) as wire:
        wire.create_topic("t")
        kept = fill_up(wire, disk)
    code = broker.stop()
    clean = (disk.path / "data" / ".kafka_cleanshutdown").exists()
    assert (code == 0) == clean
    disk.free()
    broker.start()
    with Wire(broker.connect()) as wire:
        assert values_in(wire.fetch("t", partition_max_bytes=50 << 20)) == kept
        assert wire.produce("t", batch_of(b"again")).base_offset == len(kept)


def test_l3_what_was_deleted_makes_room_at_once_on_a_full_disk(tmp_path: Path, disk: SmallDisk) -> None:
    """Row L3: file.delete.delay.ms keeps deleted segments for an hour here, but not from a producer without room."""
    settings = {
        "durability": "os",
        "log.segment.bytes": str(1 << 20),
        "log.segment.delete.delay.ms": "3600000",
        "log.retention.check.interval.ms": "200",
    }
    with (
        BrokerProcess(tmp_path / "broker", data_dir=disk.path / "data", settings=settings) as broker,
        Wire(broker.connect()) as wire,
    ):
        wire.create_topic("t", **{"retention.bytes": str(2 << 20)})
        for number in range(30):
            assert wire.produce("t", batch_of(b"%d" % number + VALUE)).error_code == ErrorCode.NONE
        files = disk.path / "data" / "t-0"
        until(lambda: len(list(files.glob("*.log.deleted"))) > 2)
        deleted = set(files.glob("*.log.deleted"))
        disk.fill()
        until(lambda: wire.produce("t", batch_of(VALUE)).error_code == ErrorCode.KAFKA_STORAGE_ERROR)
        until(lambda: wire.produce("t", batch_of(VALUE)).error_code == ErrorCode.NONE)
        assert not deleted & set(files.glob("*.log.deleted")), "the next check may have deleted one more since"
