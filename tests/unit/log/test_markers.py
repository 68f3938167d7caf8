"""Markers and the guards of late appends (rows T8, T9, T14 to T16, T25)."""

import pytest

from fencepost.broker.log.producer_state import ALREADY_OPEN, AppendOrigin
from fencepost.broker.log.reading import read_batches
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.protocol.batch_header import read_header
from fencepost.protocol.control_records import ControlType, read_marker
from fencepost.protocol.errors import ErrorCode
from tests.unit.log.kit import NOW_MS, UNCOMMITTED, batch, end, joined, over, send, transact, unverified


def mark(log, epoch, *, version, commit=True, coordinator_epoch=0):
    return log.append_marker(7, epoch, commit, coordinator_epoch, version, NOW_MS)


@pytest.mark.parametrize(
    ("marker_epoch", "code"), [(4, ErrorCode.INVALID_PRODUCER_EPOCH), (5, ErrorCode.NONE), (6, ErrorCode.NONE)]
)
def test_t9_tv1_marker_epoch_must_not_be_lower(marker_epoch, code):
    log = over(MemoryStore())
    transact(log, 7, 5, 0)
    assert mark(log, marker_epoch, version=1).error is code


@pytest.mark.parametrize(
    ("marker_epoch", "code"),
    [(4, ErrorCode.INVALID_PRODUCER_EPOCH), (5, ErrorCode.INVALID_PRODUCER_EPOCH), (6, ErrorCode.NONE)],
)
def test_t16_tv2_marker_epoch_must_be_higher(marker_epoch, code):
    log = over(MemoryStore())
    transact(log, 7, 5, 0)
    assert mark(log, marker_epoch, version=2).error is code
    assert log.producers.has_open(7) == bool(code)


def test_t25_a_tv2_marker_may_come_again_while_no_transaction_is_open():
    log = over(MemoryStore())
    transact(log, 7, 5, 0)
    assert mark(log, 6, version=2).error is ErrorCode.NONE
    assert mark(log, 6, version=2).error is ErrorCode.NONE
    transact(log, 7, 6, 0)
    assert mark(log, 6, version=2).error is ErrorCode.INVALID_PRODUCER_EPOCH, "KAFKA-17754: it would end the next one"
    assert log.producers.has_open(7, 6)


def test_t9_an_older_coordinator_is_fenced():
    log = over(MemoryStore())
    transact(log, 7, 0, 0)
    assert mark(log, 0, version=1, coordinator_epoch=3).error is ErrorCode.NONE
    transact(log, 7, 0, 1)
    assert mark(log, 0, version=1, coordinator_epoch=2).error is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert mark(log, 0, version=1, coordinator_epoch=3).error is ErrorCode.NONE


def test_t9_a_marker_without_data_is_written_but_completes_nothing():
    log = over(MemoryStore())
    info = log.append_marker(7, 3, False, 0, 2, NOW_MS)
    assert (info.error, info.base_offset) == (ErrorCode.NONE, 0)
    assert log.last_stable_offset == log.high_watermark == 1
    assert log.segments.aborted_between(0, 1) == []
    assert send(log, batch(1, 7, 2, 0)).error is ErrorCode.INVALID_PRODUCER_EPOCH, "but its epoch fences"


@pytest.mark.parametrize("commit", [True, False])
def test_t8_the_marker_in_the_log_says_what_was_decided(commit):
    log = over(MemoryStore())
    transact(log, 7, 0, 0)
    offset = mark(log, 1, version=2, commit=commit, coordinator_epoch=9).base_offset
    data = joined(read_batches(log, offset, 1000, UNCOMMITTED).parts)
    header = read_header(data)
    marker = read_marker(data, 0, header)
    assert marker.type is (ControlType.COMMIT if commit else ControlType.ABORT)
    assert marker.coordinator_epoch == 9
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, -1)
    assert header.is_control
    assert header.is_transactional
    assert header.base_offset == offset == 1


def test_t15_a_marker_between_verification_and_append_takes_the_guard_away():
    log = over(MemoryStore())
    guard = log.verify(7, 0, 0, 1)
    end(log, 7, 0, commit=False)
    late = log.append(batch(1, 7, 0, 0, transactional=True), AppendOrigin.CLIENT, NOW_MS, guard=guard)
    assert late.error is unverified(log)
    assert not log.producers.has_open(7)


def test_t15_a_marker_overtakes_a_batch_whose_transaction_was_open_when_it_came():
    """The request waited for another partition's verification meanwhile; appended, it would open a hanging one."""
    log = over(MemoryStore())
    transact(log, 7, 0, 0)
    assert log.verify(7, 0, 1, 1) is None
    late = batch(1, 7, 0, 1, transactional=True)
    assert log.append(bytes(late), AppendOrigin.CLIENT, NOW_MS, guard=ALREADY_OPEN).error is ErrorCode.NONE
    end(log, 7, 0, commit=True)
    late = batch(1, 7, 0, 2, transactional=True)
    assert log.append(late, AppendOrigin.CLIENT, NOW_MS, guard=ALREADY_OPEN).error is unverified(log)
    assert not list(log.producers.open_transactions())


def test_t15_no_guard_is_needed_while_this_epochs_transaction_is_open():
    log = over(MemoryStore())
    guard = log.verify(7, 0, 0, 1)
    assert guard is not None
    first = log.append(batch(1, 7, 0, 0, transactional=True), AppendOrigin.CLIENT, NOW_MS, guard=guard)
    assert first.error is ErrorCode.NONE
    assert log.verify(7, 0, 1, 1) is None
    second = log.append(batch(1, 7, 0, 1, transactional=True), AppendOrigin.CLIENT, NOW_MS, guard=guard)
    assert second.error is ErrorCode.NONE, "a request verified along with the first one"


def test_t15_requests_verified_together_share_the_guard_and_keep_their_order():
    log = over(MemoryStore())
    guard = log.verify(7, 0, 0, 1)
    assert log.verify(7, 0, 3, 1) is guard
    early = log.append(batch(1, 7, 0, 3, transactional=True), AppendOrigin.CLIENT, NOW_MS, guard=guard)
    assert early.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "row P2 (b)"
    assert log.append(batch(3, 7, 0, 0, transactional=True), AppendOrigin.CLIENT, NOW_MS, guard=guard).base_offset == 0


def test_t16_a_tv2_marker_leaves_the_guard_of_the_next_transaction_alone():
    log = over(MemoryStore())
    transact(log, 7, 0, 0)
    mark(log, 1, version=2)
    guard = log.verify(7, 1, 0, 2)
    mark(log, 1, version=2)
    info = log.append(
        batch(1, 7, 1, 0, transactional=True), AppendOrigin.CLIENT, NOW_MS, transaction_version=2, guard=guard
    )
    assert info.error is ErrorCode.NONE


def test_t15_a_new_epoch_gets_a_guard_of_its_own():
    log = over(MemoryStore())
    old = log.verify(7, 0, 0, 1)
    new = log.verify(7, 1, 0, 1)
    assert new is not old
    late = log.append(batch(1, 7, 0, 0, transactional=True), AppendOrigin.CLIENT, NOW_MS, guard=old)
    assert late.error is unverified(log)
