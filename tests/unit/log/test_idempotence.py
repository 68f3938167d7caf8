"""Sequences, epochs and the duplicate window of one partition (rows P2 to P6 and P10, rows 6 to 8 of section 0)."""

import pytest

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.config.topic_config import Dynamic
from fencepost.broker.config.topic_rules import log_config
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.producer_state import AppendOrigin
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.protocol.errors import ErrorCode
from tests.kit.trimming import delete_records, housekeep
from tests.unit.log.kit import NOW_MS, batch, crashed, directory_over, end, log_file, over, send, transact

MAX = 2**31 - 1


def test_p3_each_of_the_last_five_batches_answers_its_old_offset():
    log = over(MemoryStore())
    firsts = [send(log, batch(3, 7, 0, 3 * n)) for n in range(5)]
    for n, first in enumerate(firsts):
        again = send(log, batch(3, 7, 0, 3 * n))
        assert again.duplicate
        assert again.error is ErrorCode.NONE
        assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert log.log_end_offset == 15


def test_p3_a_batch_older_than_five_is_out_of_order():
    log = over(MemoryStore())
    for n in range(6):
        send(log, batch(1, 7, 0, n))
    assert send(log, batch(1, 7, 0, 0)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, batch(1, 7, 0, 1)).duplicate


def test_p3_both_first_and_last_sequence_must_match():
    log = over(MemoryStore())
    send(log, batch(4, 7, 0, 0))
    assert send(log, batch(3, 7, 0, 1)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, batch(3, 7, 0, 0)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_p3_duplicate_of_a_log_append_time_topic_answers_the_old_time():
    """L7, section 0, row 7; a CreateTime topic answers none."""
    log = over(MemoryStore(), LogConfig(message_timestamp_type="LogAppendTime"))
    first = log.append(batch(1, 7, 0, 0), AppendOrigin.CLIENT, NOW_MS)
    again = log.append(batch(1, 7, 0, 0), AppendOrigin.CLIENT, NOW_MS + 5000)
    assert first.log_append_time_ms == again.log_append_time_ms == NOW_MS
    plain = over(MemoryStore())
    send(plain, batch(1, 7, 0, 0))
    again = send(plain, batch(1, 7, 0, 0))
    assert (again.duplicate, again.log_append_time_ms) == (True, -1)


def test_p2_the_next_sequence_only():
    log = over(MemoryStore())
    send(log, batch(2, 7, 0, 0))
    assert send(log, batch(1, 7, 0, 3)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, batch(1, 7, 0, 2)).error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("first", "count", "follows"), [(MAX - 1, 2, 0), (MAX - 1, 3, 1), (MAX, 1, 0), (MAX - 2, 5, 2)]
)
def test_p2_sequences_wrap_at_two_to_the_31_minus_1(first, count, follows):
    log = over(MemoryStore())
    send(log, batch(count, 7, 0, first))
    assert send(log, batch(1, 7, 0, follows + 1)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, batch(1, 7, 0, follows)).base_offset == count
    assert send(log, batch(count, 7, 0, first)).duplicate, "a window that wraps is still recognised"


def test_p4_a_lower_epoch_is_invalid_producer_epoch_never_producer_fenced():
    log = over(MemoryStore())
    send(log, batch(1, 7, 3, 0))
    assert send(log, batch(1, 7, 2, 1)).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_p4_a_higher_epoch_begins_at_zero_and_clears_the_window():
    log = over(MemoryStore())
    send(log, batch(1, 7, 0, 0))
    assert send(log, batch(1, 7, 1, 1)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, batch(1, 7, 1, 0)).base_offset == 1
    assert send(log, batch(1, 7, 0, 0)).error is ErrorCode.INVALID_PRODUCER_EPOCH, "the old epoch's window is gone"


def test_p2_epoch_is_tested_before_sequence():
    log = over(MemoryStore())
    send(log, batch(1, 7, 3, 0))
    assert send(log, batch(1, 7, 2, 99)).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_p3_duplicates_are_looked_for_before_the_epoch_check_and_only_for_clients():
    log = over(MemoryStore())
    transact(log, 7, 0, 0)
    assert send(log, batch(1, 7, 0, 0, transactional=True)).duplicate
    appended = send(log, batch(1, 7, 0, -1, transactional=True), origin=AppendOrigin.COORDINATOR)
    again = send(log, batch(1, 7, 0, -1, transactional=True), origin=AppendOrigin.COORDINATOR)
    assert not again.duplicate
    assert again.base_offset == appended.base_offset + 1


def test_p5_an_unknown_producer_may_begin_with_any_sequence():
    log = over(MemoryStore())
    assert send(log, batch(1, 7, 4, 1234)).error is ErrorCode.NONE


def test_row_8_a_tv2_transaction_without_state_must_begin_at_zero():
    log = over(MemoryStore())
    late = batch(1, 7, 0, 5, transactional=True)
    assert send(log, late, version=2).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, batch(1, 7, 0, 0, transactional=True), version=2).error is ErrorCode.NONE
    assert send(log, batch(1, 7, 0, 1, transactional=True), version=2).error is ErrorCode.NONE


def test_row_8_a_tv2_marker_empties_the_window_so_the_next_transaction_begins_at_zero():
    log = over(MemoryStore())
    transact(log, 7, 0, 0)
    end(log, 7, 1, commit=True, version=2)
    assert send(log, batch(1, 7, 1, 1, transactional=True), version=2).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, batch(1, 7, 1, 0, transactional=True), version=2).error is ErrorCode.NONE


def test_tv1_sequences_go_on_across_transactions():
    log = over(MemoryStore())
    transact(log, 7, 0, 0, count=2)
    end(log, 7, 0, commit=True)
    assert send(log, batch(1, 7, 0, 0, transactional=True)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, batch(1, 7, 0, 2, transactional=True)).error is ErrorCode.NONE


def test_p2_coordinators_appends_skip_sequences_but_not_epochs():
    log = over(MemoryStore())
    offsets = batch(1, 7, 2, -1, transactional=True)
    assert send(log, offsets, origin=AppendOrigin.COORDINATOR).error is ErrorCode.NONE
    zombie = batch(1, 7, 1, -1, transactional=True)
    assert send(log, zombie, origin=AppendOrigin.COORDINATOR).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_plain_batch_inside_a_transaction_is_invalid_txn_state():
    log = over(MemoryStore())
    transact(log, 7, 0, 0)
    assert send(log, batch(1, 7, 0, 1)).error is ErrorCode.INVALID_TXN_STATE
    assert log.log_end_offset == 1


def test_a_refused_batch_changes_nothing():
    log = over(MemoryStore())
    send(log, batch(1, 7, 0, 0))
    before = list(log.producers.entries())
    send(log, batch(1, 7, 0, 9))
    send(log, batch(1, 7, 1, 9))
    assert list(log.producers.entries()) == before
    assert log.log_end_offset == 1


def test_p10_an_idle_producer_is_forgotten_but_never_one_with_an_open_transaction():
    log = over(MemoryStore(), LogConfig(producer_id_expiration_ms=1000, retention_ms=-1))
    send(log, batch(1, 7, 0, 0))
    transact(log, 8, 0, 0)
    housekeep(log, NOW_MS + 999)
    assert {entry.producer_id for entry in log.producers.entries()} == {7, 8}
    housekeep(log, NOW_MS + 1000)
    assert {entry.producer_id for entry in log.producers.entries()} == {8}
    assert send(log, batch(1, 7, 0, 55)).error is ErrorCode.NONE, "P5 again"


def test_p10_the_clock_of_expiry_follows_the_setting_of_the_moment():
    """KIP-854: producer.id.expiration.ms may be altered at run time."""
    log = over(MemoryStore(), LogConfig(retention_ms=-1))
    send(log, batch(1, 7, 0, 0))
    housekeep(log, NOW_MS + 5000)
    assert len(log.producers.entries()) == 1
    altered = Dynamic(node={}, cluster={"producer.id.expiration.ms": "5000"})
    log.config = log_config(BrokerConfig(), {"retention.ms": "-1"}, altered)
    housekeep(log, NOW_MS + 4999)
    assert len(log.producers.entries()) == 1
    housekeep(log, NOW_MS + 5000)
    assert not log.producers.entries()
    assert send(log, batch(1, 7, 0, 9)).error is ErrorCode.NONE, "P5: unknown again"


def test_p10_the_number_of_producers_is_bounded_and_the_idlest_go_first():
    """P11: no quota per principal, but a bound on memory."""
    log = over(MemoryStore(), LogConfig(producer_ids_max=10, retention_ms=-1))
    transact(log, 1, 0, 0)
    for n in range(2, 14):
        log.append(batch(1, n, 0, 0, timestamp_ms=NOW_MS + n), AppendOrigin.CLIENT, NOW_MS + n)
    housekeep(log, NOW_MS + 20)
    left = {entry.producer_id for entry in log.producers.entries()}
    assert left == {1, *range(6, 14)}


def test_p9_all_five_batches_are_known_after_a_clean_restart():
    store = MemoryStore()
    directory = directory_over(store)
    log = directory.create(*_named())
    offsets = [send(log, batch(2, 7, 0, 2 * n)).base_offset for n in range(7)]
    directory.close()
    log = over(store)
    assert [send(log, batch(2, 7, 0, 2 * n)).base_offset for n in range(2, 7)] == offsets[2:]
    assert log.log_end_offset == 14


def test_p9_all_five_batches_are_known_after_kill_9_across_a_roll():
    store = MemoryStore()
    log = over(store, LogConfig(segment_bytes=200))
    offsets = [send(log, batch(1, 7, 0, n)).base_offset for n in range(9)]
    assert len(log.segments) > 2
    log = over(crashed(store), LogConfig(segment_bytes=200))
    assert [send(log, batch(1, 7, 0, n)).base_offset for n in range(4, 9)] == offsets[4:]


def test_section_0_row_9_the_state_outlives_the_deletion_of_the_data():
    store = MemoryStore()
    log = over(store, LogConfig(segment_bytes=200))
    for n in range(4):
        send(log, batch(1, 7, 0, n))
    delete_records(log, -1)
    assert log.segments.size_bytes == 0 or log.log_start_offset == 4
    for reopened in (over(crashed(store)), log):
        assert send(reopened, batch(1, 7, 0, 9)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(reopened, batch(1, 7, 0, 4)).base_offset == 4
    assert log_file(store).size_bytes


def _named():
    from tests.unit.log.kit import TOPIC_ID, TP

    return TP, TOPIC_ID, LogConfig()
