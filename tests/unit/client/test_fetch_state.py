"""What a partition gives to the program out of what was fetched (rows I2, I6)."""

from types import SimpleNamespace
from typing import Any

import pytest

from fencepost import IsolationLevel, TopicPartition
from fencepost.client.consumer.fetch_state import PartitionState
from fencepost.protocol.batch_header import CorruptBatch
from fencepost.protocol.control_records import end_txn_marker
from fencepost.protocol.record_batch import build_batch

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def records(base: int, count: int, producer: int = -1) -> bytearray:
    made = [(0, None, b"%d" % n, ()) for n in range(base, base + count)]
    sequence = 0 if producer >= 0 else -1
    return build_batch(
        made,
        base_offset=base,
        producer_id=producer,
        producer_epoch=sequence,
        base_sequence=sequence,
        transactional=producer >= 0,
    )


def marker(offset: int, producer: int, commit: bool) -> bytearray:
    return end_txn_marker(producer, 0, commit, 0, 0, base_offset=offset)


def answer(*batches: bytearray, aborted: list[tuple[int, int]] | None = None) -> Any:
    data = b"".join(batches)
    entries = None
    if aborted is not None:
        entries = [SimpleNamespace(producer_id=producer, first_offset=first) for producer, first in aborted]
    return SimpleNamespace(
        high_watermark=100, last_stable_offset=90, log_start_offset=0, aborted_transactions=entries, records=data
    )


@pytest.fixture
def state() -> PartitionState:
    made = PartitionState(TopicPartition("t", 0))
    made.start_at(0)
    return made


def offsets(state: PartitionState, limit: int = 100) -> list[int]:
    return [record.offset for record in state.take(limit)]


def test_records_come_in_order_and_the_position_follows(state: PartitionState) -> None:
    state.arrive(answer(records(0, 3), records(3, 2)), COMMITTED, check_crcs=True)
    assert state.fetch_offset == 5
    assert state.available() == 5
    assert offsets(state, 2) == [0, 1]
    assert state.position == 2
    assert offsets(state, 2) == [2, 3]
    assert offsets(state) == [4]
    assert (state.position, state.available()) == (5, 0)


def test_the_aborted_are_left_out_and_passed_over(state: PartitionState) -> None:
    """I2: aborted records and markers are never given out, but the position moves behind them."""
    state.arrive(
        answer(
            records(0, 2, producer=1),
            records(2, 2, producer=2),
            marker(4, 1, commit=False),
            records(5, 1, producer=1),
            marker(6, 2, commit=True),
            marker(7, 1, commit=True),
            aborted=[(1, 0)],
        ),
        COMMITTED,
        check_crcs=True,
    )
    assert offsets(state) == [2, 3, 5]
    assert state.position == 8


def test_read_uncommitted_leaves_out_only_the_markers(state: PartitionState) -> None:
    state.arrive(answer(records(0, 2, producer=1), marker(2, 1, commit=False)), UNCOMMITTED, check_crcs=True)
    assert offsets(state) == [0, 1]
    assert state.position == 3


def test_an_answer_of_markers_only_moves_the_position_by_itself(state: PartitionState) -> None:
    state.arrive(answer(marker(0, 1, commit=False), marker(1, 2, commit=True), aborted=[]), COMMITTED, check_crcs=True)
    assert (state.position, state.available(), state.lag(COMMITTED)) == (2, 0, 88)


def test_a_batch_that_begins_before_the_position_is_cut(state: PartitionState) -> None:
    state.start_at(2)
    state.arrive(answer(records(0, 5)), COMMITTED, check_crcs=True)
    assert offsets(state) == [2, 3, 4]


def test_a_jump_drops_what_was_fetched_ahead(state: PartitionState) -> None:
    state.arrive(answer(records(0, 5)), COMMITTED, check_crcs=True)
    jumps = state.jumps
    state.jump(3)
    assert (state.available(), state.fetch_offset) == (0, 3)
    assert state.jumps != jumps


def test_a_wrong_crc_is_never_given_out(state: PartitionState) -> None:
    damaged = records(0, 3)
    damaged[-2] ^= 1
    state.arrive(answer(damaged), COMMITTED, check_crcs=True)
    assert (state.available(), state.readable()) == (0, True)
    for _ in range(2):
        with pytest.raises(CorruptBatch, match="offset 0"):
            state.take(10)


def test_a_batch_that_can_not_be_unpacked_is_not_skipped(state: PartitionState) -> None:
    broken = bytearray(records(0, 3))
    broken[61] = 0x7F
    state.arrive(answer(broken), COMMITTED, check_crcs=False)
    for _ in range(2):
        with pytest.raises(CorruptBatch):
            state.take(10)
    assert state.position == 0


def test_an_incomplete_last_batch_is_fetched_again(state: PartitionState) -> None:
    state.arrive(answer(records(0, 2), records(2, 2)[:-3]), COMMITTED, check_crcs=True)
    assert offsets(state) == [0, 1]
    assert state.fetch_offset == 2


def test_lag_is_counted_to_the_last_stable_offset_for_read_committed(state: PartitionState) -> None:
    assert state.lag(COMMITTED) is None
    state.arrive(answer(records(0, 10)), COMMITTED, check_crcs=True)
    offsets(state)
    assert (state.lag(COMMITTED), state.lag(UNCOMMITTED)) == (80, 90)


def test_a_paused_partition_gives_nothing_and_asks_for_nothing(state: PartitionState) -> None:
    state.arrive(answer(records(0, 3)), COMMITTED, check_crcs=True)
    state.paused = True
    assert (state.available(), offsets(state), state.fetchable(0.0, 1 << 20)) == (0, [], False)
    state.paused = False
    assert offsets(state) == [0, 1, 2]


def test_the_limit_of_a_consumer_was_lost_when_its_topic_was_created_again() -> None:
    """`max_decompressed_bytes` is a setting of the consumer, not of the old topic."""
    old = PartitionState(TopicPartition("t", 0), keeps_all=True, limit_bytes=1 << 20)
    old.pause(True)
    new = old.in_new_topic()
    assert (new.limit_bytes, new.keeps_all, new.paused) == (1 << 20, True, True)
