"""EndTxn: the whole table of both protocol versions (rows T7, T24, KIP-890, KAFKA-18464, KAFKA-20785)."""

import pytest

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.ports import Marker
from fencepost.coordinator.txn import machine
from fencepost.coordinator.txn.commands import NEEDS_PRODUCER_ID, Answer, Complete, EndTxn, TxnDecision
from fencepost.coordinator.txn.state import (
    DEAD,
    CompleteAbort,
    CompleteCommit,
    PrepareAbort,
    PrepareCommit,
    Producer,
    TxnState,
    marker_of,
)
from fencepost.protocol.errors import ErrorCode
from tests.unit.txn.states import (
    ABORTED,
    ABORTING,
    ALL,
    COMMITTED,
    COMMITTING,
    EMPTY,
    EPOCH,
    FRESH,
    NOW,
    ON_P0,
    ONGOING,
    PID,
    TX,
    after,
    granted,
    name_of,
    refused,
    with_producer,
)

COMMIT, ABORT = True, False
CURRENT, RETRY = EPOCH, EPOCH - 1
BUMP = "bump"
DECIDED = "decided"
SAME = "the same answer, after the markers"
PF, ITS, NONE, CT = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.NONE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def end(state: TxnState, epoch: int, commit: bool, version: int, fresh: int | None = None) -> TxnDecision:
    return machine.decide(TX, state, EndTxn(PID, epoch, commit, version, fresh), NOW, 2)


TV1_TABLE = [
    # state, request epoch, commit, outcome
    (EMPTY, CURRENT, COMMIT, ITS),
    (EMPTY, CURRENT, ABORT, ITS),
    (ONGOING, CURRENT, COMMIT, DECIDED),
    (ONGOING, CURRENT, ABORT, DECIDED),
    (COMMITTING, CURRENT, COMMIT, SAME),
    (COMMITTING, CURRENT, ABORT, ITS),
    (ABORTING, CURRENT, COMMIT, ITS),
    (ABORTING, CURRENT, ABORT, SAME),
    (COMMITTED, CURRENT, COMMIT, NONE),
    (COMMITTED, CURRENT, ABORT, ITS),
    (ABORTED, CURRENT, COMMIT, ITS),
    (ABORTED, CURRENT, ABORT, NONE),
    *[(state, epoch, commit, PF) for state in ALL[1:] for epoch in (RETRY, CURRENT + 1) for commit in (COMMIT, ABORT)],
]

TV2_TABLE = [
    (EMPTY, RETRY, ABORT, PF),
    (EMPTY, CURRENT, ABORT, BUMP),
    (EMPTY, RETRY, COMMIT, PF),
    (EMPTY, CURRENT, COMMIT, ITS),
    (ABORTED, RETRY, ABORT, NONE),
    (ABORTED, CURRENT, ABORT, BUMP),
    (ABORTED, RETRY, COMMIT, PF),  # KAFKA-20785
    (ABORTED, CURRENT, COMMIT, ITS),
    (COMMITTED, RETRY, ABORT, ITS),
    (COMMITTED, CURRENT, ABORT, BUMP),
    (COMMITTED, RETRY, COMMIT, NONE),
    (COMMITTED, CURRENT, COMMIT, ITS),
    (ONGOING, CURRENT, COMMIT, BUMP),
    (ONGOING, CURRENT, ABORT, BUMP),
    (ONGOING, RETRY, COMMIT, PF),  # KAFKA-17754: a late EndTxn must not hit the next transaction
    (ONGOING, RETRY, ABORT, PF),
    (COMMITTING, RETRY, COMMIT, SAME),
    (ABORTING, RETRY, ABORT, SAME),
    (COMMITTING, RETRY, ABORT, CT),
    (ABORTING, RETRY, COMMIT, CT),
    *[
        (state, CURRENT, commit, CT)  # KAFKA-18464: what the epoch means is asked after the markers
        for state in (COMMITTING, ABORTING)
        for commit in (COMMIT, ABORT)
    ],
    *[
        (state, epoch, commit, PF)
        for state in (EMPTY, ABORTED, COMMITTED, ONGOING)
        for epoch in (RETRY - 1, CURRENT + 1)
        for commit in (COMMIT, ABORT)
    ],
]


@pytest.mark.parametrize(("state", "epoch", "commit", "outcome"), TV1_TABLE, ids=name_of)
@pytest.mark.parametrize("version", [0, 1])
def test_tv1(state: TxnState, epoch: int, commit: bool, outcome: object, version: int) -> None:
    decision = end(state, epoch, commit, version)
    if outcome is DECIDED:
        made = PrepareCommit if commit else PrepareAbort
        assert after(decision) == made(ONGOING.producer, ONGOING.timeout_ms, ON_P0, ONGOING.started_ms, NOW, version)
        assert granted(decision) == (PID, EPOCH)
        assert marker_of(after(decision), 0) == Marker(PID, EPOCH, commit, 0, version)
    elif outcome is SAME:
        assert decision == Decision(Answer(NONE, PID, EPOCH, after_markers=True))
    else:
        assert refused(decision) is outcome


@pytest.mark.parametrize(("state", "epoch", "commit", "outcome"), TV2_TABLE, ids=name_of)
def test_tv2(state: TxnState, epoch: int, commit: bool, outcome: object) -> None:
    decision = end(state, epoch, commit, 2)
    if outcome is BUMP:
        assert granted(decision) == (PID, EPOCH + 1)
        prepared = after(decision)
        assert type(prepared) is (PrepareCommit if commit else PrepareAbort)
        assert prepared.producer == Producer(PID, EPOCH + 1, PID, EPOCH)
        assert prepared.partitions == (ON_P0 if state is ONGOING else frozenset())
        assert prepared.started_ms == (ONGOING.started_ms if state is ONGOING else NOW)
        assert marker_of(prepared, 0) == Marker(PID, EPOCH + 1, commit, 0, 2)
    elif outcome is SAME:
        assert decision == Decision(Answer(NONE, PID, EPOCH, after_markers=True))
    else:
        assert refused(decision) is outcome
        if outcome is NONE:
            assert granted(decision) == (PID, EPOCH), "NONE answers the stored identity"


def test_the_tv2_table_of_the_rules_is_whole() -> None:
    cells = {(type(state), epoch, commit) for state, epoch, commit, _ in TV2_TABLE}
    for state in (EMPTY, ABORTED, COMMITTED):
        for epoch in (RETRY, CURRENT):
            for commit in (COMMIT, ABORT):
                assert (type(state), epoch, commit) in cells


@pytest.mark.parametrize("version", [0, 2])
def test_an_unknown_id_or_a_foreign_producer_id_is_no_mapping(version: int) -> None:
    assert refused(end(DEAD, EPOCH, COMMIT, version)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for state in ALL[1:]:
        decision = machine.decide(TX, state, EndTxn(8, EPOCH, COMMIT, version), NOW, 2)
        assert refused(decision) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("commit", [COMMIT, ABORT])
def test_a_retry_after_the_markers_gets_the_answer_that_was_lost(commit: bool) -> None:
    first = end(ONGOING, EPOCH, commit, 2)
    done = after(machine.decide(TX, after(first), Complete(), NOW, 2))
    assert granted(end(done, EPOCH, commit, 2)) == granted(first) == (PID, EPOCH + 1)


@pytest.mark.parametrize("commit", [COMMIT, ABORT])
def test_the_last_epoch_hands_over_to_a_fresh_producer_id(commit: bool) -> None:
    """Row P12: markers at 32767, then (fresh, 0); the retry shows 32766 of the old producer id."""
    worn = with_producer(ONGOING, Producer(PID, 32766, PID, 32765))
    assert end(worn, 32766, commit, 2).reply is NEEDS_PRODUCER_ID
    first = end(worn, 32766, commit, 2, FRESH)
    assert granted(first) == (FRESH, 0)
    prepared = after(first)
    assert isinstance(prepared, PrepareCommit | PrepareAbort)
    assert prepared.producer.epoch == 32767
    assert granted(end(prepared, 32766, commit, 2)) == (FRESH, 0)
    done = after(machine.decide(TX, prepared, Complete(), NOW, 2))
    assert isinstance(done, CompleteCommit | CompleteAbort)
    assert done.producer == Producer(FRESH, 0, PID, 32766)
    assert granted(end(done, 32766, commit, 2)) == (FRESH, 0)
    opposite = end(done, 32766, not commit, 2)
    assert refused(opposite) is (ErrorCode.INVALID_TXN_STATE if commit else ErrorCode.PRODUCER_FENCED)


def test_an_abort_after_a_timeout_in_the_last_epoch_gets_a_fresh_producer_id() -> None:
    """Row P12: under TV1 a timeout's marker takes 32767. A client that then speaks TV2 must not continue with it: the
    marker of its next transaction would have no epoch left, and the transaction would never end."""
    timed_out = with_producer(ABORTED, Producer(PID, 32767, PID, -1))
    assert end(timed_out, 32766, ABORT, 2).reply is NEEDS_PRODUCER_ID
    first = end(timed_out, 32766, ABORT, 2, FRESH)
    assert granted(first) == (FRESH, 0)
    done = after(machine.decide(TX, after(first), Complete(), NOW, 2))
    assert granted(end(done, 32766, ABORT, 2)) == (FRESH, 0)
    assert refused(end(timed_out, 32766, COMMIT, 2, FRESH)) is PF


def test_tv1_leaves_the_last_epoch_alone() -> None:
    worn = with_producer(ONGOING, Producer(PID, 32766, PID, -1))
    assert granted(end(worn, 32766, COMMIT, 0)) == (PID, 32766)


def test_answers_of_refusals_carry_no_identity() -> None:
    assert end(EMPTY, CURRENT, COMMIT, 2).reply == Answer(ErrorCode.INVALID_TXN_STATE)
