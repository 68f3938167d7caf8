"""Batches that are kept between fetches of single records: the same is read as from the log."""

import dataclasses

import pytest

from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.share import kept_batches
from fencepost.broker.share.kept_batches import KeptBatches
from fencepost.broker.share.led import LedPartition
from fencepost.broker.share.reading import SharedRead, read_for
from fencepost.broker.share.values import Limits
from fencepost.coordinator.share.values import ShareKey
from fencepost.protocol.topics import IsolationLevel
from tests.unit.log.kit import COMMITTED, TP, UNCOMMITTED, batch, over, send, settle

COUNT = 4
"""Records of a batch."""
BYTES_MAX = 1 << 20


def led_by(log: PartitionLog, group_id: str = "g") -> LedPartition:
    return LedPartition(ShareKey(group_id, bytes(16), 0), TP, log, lambda: Limits(200, 5, 30_000, True, False))


def written(batches: int = 3) -> PartitionLog:
    log = over(MemoryStore())
    for _ in range(batches):
        send(log, batch(COUNT, value=bytes(300)))  # so that one is all that is read for one record
    settle(log)
    return log


def read(
    kept: KeptBatches,
    led: LedPartition,
    offset: int,
    records: int = 1,
    isolation: IsolationLevel = UNCOMMITTED,
    *,
    max_bytes: int = BYTES_MAX,
    at_least_one: bool = True,
) -> SharedRead:
    return kept.read(led, offset, max_bytes, records, isolation, at_least_one=at_least_one)


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
def test_each_record_by_itself_is_read_as_from_the_log(isolation: IsolationLevel) -> None:
    log, kept = written(), KeptBatches()
    led = led_by(log)
    for offset in range(3 * COUNT):
        assert read(kept, led, offset, 1, isolation) == read_for(log, offset, BYTES_MAX, 1, isolation)
        assert kept.size_bytes(led, offset, isolation) > 0


def test_what_is_kept_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, led = KeptBatches(), led_by(written())
    first = read(kept, led, 0)
    monkeypatch.setattr(kept_batches, "read_for", None)
    assert read(kept, led, COUNT - 1).pieces == first.pieces


def test_what_is_wanted_beyond_it_is_read() -> None:
    kept, led = KeptBatches(), led_by(written())
    read(kept, led, 0)
    assert len(read(kept, led, 1, COUNT).pieces) > 1
    assert read(kept, led, COUNT).fetched.batches == [(COUNT, 2 * COUNT - 1)]


def test_another_isolation_level_reads_anew() -> None:
    """`share.isolation.level` may change while the group runs (KIP-932)."""
    kept, led = KeptBatches(), led_by(written())
    read(kept, led, 0)
    assert kept.size_bytes(led, 0, COMMITTED) == 0


def test_a_batch_too_long_for_the_rest_of_a_response_waits() -> None:
    """ReplicaManager.readFromLog: only the first batch of a response may exceed its bytes."""
    kept, led = KeptBatches(), led_by(written())
    read(kept, led, 0)
    assert not read(kept, led, 1, max_bytes=10, at_least_one=False).pieces


def test_each_share_partition_keeps_its_own_until_it_is_used_no_more() -> None:
    kept, log = KeptBatches(), written()
    one, other = led_by(log), led_by(log, "other")
    read(kept, one, 0)
    read(kept, other, COUNT)
    kept.forget(one)
    assert not kept.size_bytes(one, 0, UNCOMMITTED)
    assert kept.size_bytes(other, COUNT, UNCOMMITTED)


def test_a_log_that_is_compacted_keeps_nothing() -> None:
    """SharePartition.maybeArchiveStaleBatches: what compaction removed is not delivered."""
    log, kept = written(), KeptBatches()
    log.config = dataclasses.replace(log.config, cleanup_policy=frozenset({"compact"}))
    led = led_by(log)
    read(kept, led, 0)
    assert not kept.size_bytes(led, 0, UNCOMMITTED)


def test_all_batches_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, log = KeptBatches(), written(1)
    partitions = [led_by(log, str(number)) for number in range(5)]
    size = len(read(kept, partitions[0], 0).pieces[0][1])
    monkeypatch.setattr(kept_batches, "BYTES_MAX", 3 * size)
    for led in partitions:
        read(kept, led, 0)
    assert [bool(kept.size_bytes(led, 0, UNCOMMITTED)) for led in partitions] == [False, False, True, True, True]
