"""Retention and DeleteRecords over the rows of a cluster's database: as for files, and no producer is forgotten."""

import random

import pytest

from fencepost.broker.log import trimming
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability.upkeep import at_once
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.recovery.snapshots import encode_snapshot
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.protocol.errors import ErrorCode
from tests.kit.engine_worlds import World
from tests.kit.growing import Writers, content, growth_of, merge, opened
from tests.kit.shared_store import StoreBroker, Stores
from tests.kit.trimming import delete_records, housekeep
from tests.unit.log.kit import NOW_MS, TP, batch, over, settle

DAY_MS = 24 * 3600 * 1000
EACH_ALONE = 600
"""Bytes of a segment: each batch begins a new one, as each round begins a new row."""


def upkeep(broker: StoreBroker, log: PartitionLog, now_ms: int) -> None:
    """One run of housekeeping, which stores the start offsets at its end."""
    housekeep(log, now_ms)
    for task in log.log_start_files():
        task.sync()


@pytest.mark.parametrize("seed", range(6))
def test_the_same_records_go_as_from_files(seed: int) -> None:
    """By time, by size and by DeleteRecords, at any moment: the starts are equal, before and after a takeover."""
    random_ = random.Random(seed)
    config = LogConfig(
        segment_bytes=EACH_ALONE,
        retention_ms=random_.choice([-1, 5 * DAY_MS]),
        retention_bytes=random_.choice([-1, 2000, 8000]),
    )
    files = over(MemoryStore(), config)
    stores = Stores()
    broker = stores.broker(1)
    log, now_ms = opened(broker, config=config), NOW_MS
    for number in range(120):
        now_ms += random_.randint(0, DAY_MS // 2)
        data = batch(1, value=random_.randbytes(random_.choice([350, 400])), timestamp_ms=now_ms)
        assert not files.append(bytearray(data), AppendOrigin.COORDINATOR, now_ms).error
        settle(files)
        log.append(data, AppendOrigin.COORDINATOR, now_ms)
        broker.round()
        if random_.random() < 0.2:
            housekeep(files, now_ms)
            upkeep(broker, log, now_ms)
        if random_.random() < 0.05:
            offset = random_.randint(log.log_start_offset, log.high_watermark)
            assert delete_records(log, offset) == delete_records(files, offset)
        assert log.log_start_offset == files.log_start_offset, number
        if random_.random() < 0.05:
            housekeep(files, now_ms)
            upkeep(broker, log, now_ms)
            broker = stores.broker(number + 2)
            log = opened(broker, config=config)
            log.raise_log_start(next(head.start for head in broker.engine.heads()))
            assert log.log_start_offset == files.log_start_offset, number
    assert log.log_start_offset > 0


def test_all_rows_may_go_and_offsets_go_on(world: World) -> None:
    stores = Stores(world)
    broker = stores.broker(1)
    log = opened(broker, config=LogConfig(retention_ms=DAY_MS))
    for _ in range(3):
        log.append(batch(2), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    upkeep(broker, log, NOW_MS + 2 * DAY_MS)
    assert (log.log_start_offset, log.log_end_offset, log.segments.size_bytes) == (6, 6, 0)
    upkeep(broker, log, NOW_MS + 3 * DAY_MS)
    successor = stores.broker(2)
    assert successor.engine.rows(log.segments.log_id, 0, 1 << 62) == []
    again = opened(successor)
    assert (again.log_start_offset, again.log_end_offset) == (6, 6)
    ticket = again.append(batch(1), AppendOrigin.COORDINATOR, NOW_MS)
    successor.round()
    assert ticket.base_offset == 6


@pytest.mark.parametrize("seed", range(4))
def test_producers_outlive_their_records(world: World, seed: int) -> None:
    """Row P9: sequences and epochs are those of before, whatever was deleted or merged, at the next broker."""
    random_ = random.Random(seed)
    stores, writers = Stores(world), Writers(random_)
    for number in range(1, 4):
        broker = stores.broker(number)
        log = opened(broker)
        growth = growth_of(broker, log)
        for _ in range(30):
            writers.step(log)
            broker.round()
            if random_.random() < 0.1:
                merge(growth)
            if random_.random() < 0.2:
                assert (
                    delete_records(log, random_.randint(log.log_start_offset, log.high_watermark))[0] is ErrorCode.NONE
                )
        state, before = encode_snapshot(sorted(log.producers.entries())), content(broker, log)
        successor = stores.broker(100 + number)
        again = opened(successor)
        again.raise_log_start(log.log_start_offset)
        assert encode_snapshot(sorted(again.producers.entries())) == state
        assert content(successor, again) == before
    assert log.log_start_offset > 0


def test_rows_that_retention_drops_during_a_merge() -> None:
    """The database deletes them when the start is stored: until then the merge of the rows behind them waits."""
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker, config=LogConfig(retention_bytes=700, retention_ms=-1, producer_id_expiration_ms=1 << 60))
    for number in range(10):
        log.append(batch(1, 7, 0, number, value=bytes(60)), AppendOrigin.CLIENT, NOW_MS)
        broker.round()
    assert trimming.housekeep(log, NOW_MS)
    at_once(trimming.deleting_segments(log, NOW_MS))
    assert 0 < log.log_start_offset < 6
    growth = growth_of(broker, log)
    merge(growth)
    assert len(broker.engine.rows(log.segments.log_id, 0, 99)) == 10, "the producers' state would lack the dropped runs"
    upkeep(broker, log, NOW_MS)
    merge(growth)
    assert [row.base for row in broker.engine.rows(log.segments.log_id, 0, 99)] == [log.log_start_offset]
    successor = stores.broker(2)
    again = opened(successor)
    assert again.producers.get(7) == log.producers.get(7)
    assert content(successor, again) == content(broker, log)


def test_a_broker_that_was_taken_over_deletes_nothing() -> None:
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker, config=LogConfig(retention_ms=DAY_MS))
    log.append(batch(1), AppendOrigin.COORDINATOR, NOW_MS)
    broker.round()
    successor = stores.broker(2)
    assert trimming.housekeep(log, NOW_MS + 2 * DAY_MS)
    with pytest.raises(OSError, match=r"taken over|fenced"):
        upkeep(broker, log, NOW_MS + 2 * DAY_MS)
    assert content(successor, opened(successor))
    assert str(TP) in successor.logs.names()
