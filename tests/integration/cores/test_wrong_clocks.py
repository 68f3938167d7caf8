"""The wall clock of one core is wrong, or jumps: what lasts a while lasts as long by the monotonic clock."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.protocol.errors import ErrorCode
from tests.kit.cores_broker import Cores
from tests.kit.cores_clocks import FAR_MS, ShiftedBroker
from tests.kit.cores_transactions import Producer, begin, committed, end, write
from tests.kit.waiting import until
from tests.kit.wire import batch_of

CORES = 3
TIMEOUT_MS, LONG_MS, HOUR_MS = 1500, 60_000, 3_600_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ShiftedBroker]:
    settings = {"log.retention.check.interval.ms": "200"}
    with ShiftedBroker(tmp_path / "work", data_dir=tmp_path / "data", settings=settings, cores=CORES) as made:
        yield made


def begun(cores: Cores, name: str, timeout_ms: int) -> Producer:
    """A transaction with a record in each partition."""
    producer = begin(cores, name, timeout_ms)
    write(cores, "t", name, producer)
    return producer


@pytest.mark.parametrize("ms", [-FAR_MS, FAR_MS])
@pytest.mark.parametrize("who", ["coordinator", "leader"])
def test_a_transaction_outlives_a_jump_of_a_clock(broker: ShiftedBroker, ms: int, who: str) -> None:
    """Row T10. Kafka's TransactionStateManager.timedOutTransactions compares wall-clock times, and aborts it early."""
    cores = Cores(broker)
    cores.create("t")
    name = cores.name_at(1)
    producer = begun(cores, name, LONG_MS)
    broker.shifts.set(1 if who == "coordinator" else 2, ms)
    begun(cores, cores.name_at(1, prefix="short"), TIMEOUT_MS)
    until(lambda: "aborted after its timeout" in broker.log())
    end(cores, name, producer, commit=True)
    assert committed(cores, "t") == [[b"v"]] * CORES


def test_a_transaction_of_a_core_whose_clock_is_set_back_is_aborted_in_time(broker: ShiftedBroker) -> None:
    """Row T10. In Kafka it would stay open until the clock has come as far again."""
    cores = Cores(broker)
    cores.create("t")
    broker.shifts.set(1, FAR_MS)
    begun(cores, cores.name_at(1), TIMEOUT_MS)
    broker.shifts.set(1, -FAR_MS)
    broker.kill_core(1)  # it loads a start that is in the future
    assert committed(cores, "t") == [[]] * CORES


def test_a_clock_that_is_an_hour_behind_refuses_records_of_clients(broker: ShiftedBroker) -> None:
    """LogValidator.validateTimestamp, message.timestamp.after.max.ms: no record is stored with a time far ahead."""
    cores = Cores(broker)
    [leader] = cores.create("t", 1)
    broker.shifts.set(leader, -HOUR_MS - LONG_MS)
    answer = cores.produce(leader, "t", batch_of(b"v", timestamp_ms=now_ms()), 0)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    broker.shifts.set(leader, -FAR_MS)
    assert cores.produce(leader, "t", batch_of(b"v", timestamp_ms=now_ms()), 0).error_code == ErrorCode.NONE


def test_retention_goes_by_the_wall_clock(broker: ShiftedBroker) -> None:
    """UnifiedLog.deleteRetentionMsBreachedSegments: ahead, it deletes early; behind, late. Within it, nothing goes."""
    cores = Cores(broker)
    kept = cores.create("kept", retention_ms=str(FAR_MS + HOUR_MS))
    [leader] = cores.create("gone", 1, retention_ms=str(FAR_MS - LONG_MS))
    for partition, core in enumerate(kept):
        cores.produce(core, "kept", batch_of(b"v", timestamp_ms=now_ms()), partition)
    cores.produce(leader, "gone", batch_of(b"v", timestamp_ms=now_ms()), 0)
    for core in cores.numbers:
        broker.shifts.set(core, FAR_MS)
    until(lambda: cores.fetch(leader, "gone", 0, offset=1).log_start_offset, lambda start: start == 1)
    assert committed(cores, "kept") == [[b"v"]] * CORES


def now_ms() -> int:
    return time.time_ns() // 1_000_000
