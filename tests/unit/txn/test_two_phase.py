"""Two-phase commit: a prepared transaction that a successor keeps and ends (rows T22, T23; KIP-939)."""

from dataclasses import replace

import pytest

from fencepost.coordinator.ports import Marker
from fencepost.coordinator.txn import codec, machine
from fencepost.coordinator.txn.commands import (
    NEEDS_PRODUCER_ID,
    AddPartitions,
    Answer,
    Complete,
    EndTxn,
    InitProducerId,
    TimeOut,
    VerifyPartitions,
)
from fencepost.coordinator.txn.expiry import NO_TIMEOUT_MS
from fencepost.coordinator.txn.state import (
    DEAD,
    CompleteAbort,
    CompleteCommit,
    Empty,
    Ongoing,
    PrepareAbort,
    PrepareCommit,
    Producer,
    TxnRecord,
    TxnState,
    holder,
    marker_of,
)
from fencepost.protocol.errors import ErrorCode
from tests.unit.txn.states import (
    COMMITTING,
    EPOCH,
    FRESH,
    IDLE,
    NOW,
    ON_P0,
    ONGOING,
    PID,
    TX,
    after,
    decide,
    granted,
    name_of,
    refused,
    with_producer,
)

KEEP = InitProducerId(NO_TIMEOUT_MS, keep_prepared=True)
PF, ITS = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE


def kept(state: TxnState = ONGOING, command: InitProducerId = KEEP) -> Ongoing:
    found = after(decide(state, command))
    assert isinstance(found, Ongoing)
    return found


class TestKeep:
    """Row T23, the takeover."""

    def test_the_transaction_stays_and_its_identity_is_told(self) -> None:
        decision = decide(ONGOING, KEEP)
        assert decision.reply == Answer(ErrorCode.NONE, PID, EPOCH + 1, ongoing=(PID, EPOCH))
        assert after(decision) == replace(
            ONGOING, timeout_ms=NO_TIMEOUT_MS, updated_ms=NOW, next_producer_id=PID, next_producer_epoch=EPOCH + 1
        )

    def test_each_successor_fences_the_one_before(self) -> None:
        twice = kept(kept())
        assert holder(twice) == (PID, EPOCH + 2)
        assert twice.producer == ONGOING.producer
        assert refused(decide(twice, EndTxn(PID, EPOCH + 1, True, 2))) is PF
        assert refused(decide(twice, EndTxn(PID, EPOCH, True, 2))) is PF

    @pytest.mark.parametrize("state", IDLE, ids=name_of)
    def test_without_an_open_transaction_it_is_an_ordinary_takeover(self, state: TxnState) -> None:
        decision = decide(state, KEEP)
        assert decision.reply == Answer(ErrorCode.NONE, PID, EPOCH + 1)
        assert after(decision) == Empty(Producer(PID, EPOCH + 1, PID, -1), NO_TIMEOUT_MS, NOW)

    def test_an_unknown_id_starts_as_always(self) -> None:
        assert granted(decide(DEAD, replace(KEEP, fresh_producer_id=FRESH))) == (FRESH, 0)

    def test_a_decided_transaction_is_waited_for(self) -> None:
        assert refused(decide(COMMITTING, KEEP)) is ErrorCode.CONCURRENT_TRANSACTIONS

    def test_an_identity_that_is_shown_must_be_the_newest(self) -> None:
        assert granted(decide(ONGOING, replace(KEEP, expected=(PID, EPOCH)))) == (PID, EPOCH + 1)
        for expected in ((PID, EPOCH - 1), (PID, EPOCH + 1), (8, EPOCH)):
            assert refused(decide(ONGOING, replace(KEEP, expected=expected))) is PF
        assert refused(decide(kept(), replace(KEEP, expected=(PID, EPOCH)))) is PF

    def test_the_last_epoch_hands_over_to_a_fresh_producer_id(self) -> None:
        """Row P12: the records stay under the old id, and so do their markers."""
        worn = with_producer(ONGOING, Producer(PID, 32766, PID, 32765))
        assert decide(worn, KEEP).reply is NEEDS_PRODUCER_ID
        decision = decide(worn, replace(KEEP, fresh_producer_id=FRESH))
        assert decision.reply == Answer(ErrorCode.NONE, FRESH, 0, ongoing=(PID, 32766))
        ended = decide(after(decision), EndTxn(FRESH, 0, True, 2))
        assert granted(ended) == (FRESH, 1)
        assert marker_of(after(ended), 0)[:2] == (PID, 32767)
        done = after(decide(after(ended), Complete()))
        assert holder(done) == (FRESH, 1)  # type: ignore[arg-type]
        assert granted(decide(done, EndTxn(FRESH, 0, True, 2))) == (FRESH, 1), "the retry of a lost answer"

    def test_a_transaction_with_a_timeout_keeps_it_unless_it_becomes_two_phase(self) -> None:
        """Row T22. keepPreparedTxn may be asked for without enable2Pc."""
        assert kept(command=replace(KEEP, timeout_ms=30_000)).timeout_ms == ONGOING.timeout_ms
        assert kept().timeout_ms == NO_TIMEOUT_MS


class TestKept:
    """Row T23, what may happen to a kept transaction: it is ended, and nothing else."""

    @pytest.mark.parametrize("version", [0, 2])
    def test_no_request_adds_to_it(self, version: int) -> None:
        for identity, error in (((PID, EPOCH + 1), ITS), ((PID, EPOCH), PF)):
            assert refused(decide(kept(), AddPartitions(*identity, ON_P0, version))) is error
            assert refused(decide(kept(), VerifyPartitions(*identity, ON_P0))) is error

    @pytest.mark.parametrize("commit", [True, False])
    def test_tv2_its_holder_ends_it_under_an_epoch_of_its_own(self, commit: bool) -> None:
        """The markers are above the records, the holder's next epoch above what ended it (the KIP's delayed commit)."""
        ended = decide(kept(), EndTxn(PID, EPOCH + 1, commit, 2))
        assert granted(ended) == (PID, EPOCH + 2)
        prepared = after(ended)
        assert (*marker_of(prepared, 0)[:3], prepared.partitions) == (PID, EPOCH + 1, commit, ON_P0)
        assert type(prepared) is (PrepareCommit if commit else PrepareAbort)
        again = decide(prepared, EndTxn(PID, EPOCH + 1, commit, 2))
        assert again.reply == Answer(ErrorCode.NONE, PID, EPOCH + 2, after_markers=True)
        done = after(decide(prepared, Complete()))
        assert isinstance(done, CompleteCommit | CompleteAbort)
        assert holder(done) == (PID, EPOCH + 2)
        assert granted(decide(done, EndTxn(PID, EPOCH + 1, commit, 2))) == (PID, EPOCH + 2)
        begun = after(decide(done, AddPartitions(PID, EPOCH + 2, ON_P0, 2)))
        assert refused(decide(begun, EndTxn(PID, EPOCH + 1, commit, 2))) is PF, "a late copy means no later one"

    @pytest.mark.parametrize("commit", [True, False])
    def test_tv1_its_holder_keeps_its_identity(self, commit: bool) -> None:
        ended = decide(kept(), EndTxn(PID, EPOCH + 1, commit, 0), 1)
        assert granted(ended) == (PID, EPOCH + 1)
        assert marker_of(after(ended), 0) == Marker(PID, EPOCH + 1, commit, 0, 0)
        again = decide(after(ended), EndTxn(PID, EPOCH + 1, commit, 0), 1)
        assert again.reply == Answer(ErrorCode.NONE, PID, EPOCH + 1, after_markers=True)
        done = after(decide(after(ended), Complete(), 1))
        assert granted(decide(done, EndTxn(PID, EPOCH + 1, commit, 0), 1)) == (PID, EPOCH + 1)

    def test_tv1_after_a_change_of_the_producer_id(self) -> None:
        worn = with_producer(ONGOING, Producer(PID, 32766, PID, -1))
        ended = decide(kept(worn, replace(KEEP, fresh_producer_id=FRESH)), EndTxn(FRESH, 0, True, 0), 1)
        assert granted(ended) == (FRESH, 0)
        assert granted(decide(after(ended), EndTxn(FRESH, 0, True, 0), 1)) == (FRESH, 0)
        assert holder(after(decide(after(ended), Complete(), 1))) == (FRESH, 0)  # type: ignore[arg-type]

    @pytest.mark.parametrize("version", [0, 2])
    def test_no_other_ends_it(self, version: int) -> None:
        for commit in (True, False):
            assert refused(decide(kept(), EndTxn(PID, EPOCH, commit, version))) is PF
            foreign = decide(kept(), EndTxn(8, EPOCH + 1, commit, version))
            assert refused(foreign) is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    @pytest.mark.parametrize("server_version", [0, 1, 2])
    def test_a_newcomer_that_does_not_keep_it_aborts_it(self, server_version: int) -> None:
        """How an operator ends a prepared transaction by force; all who held it before are fenced."""
        aborting = after(decide(kept(), InitProducerId(30_000), server_version))
        assert isinstance(aborting, PrepareAbort)
        assert (aborting.producer.producer_id, aborting.producer.epoch) == (PID, EPOCH + 1)
        aborted = after(decide(aborting, Complete(), server_version))
        decision = decide(aborted, InitProducerId(30_000), server_version)
        assert granted(decision) == (PID, EPOCH + 3)
        for epoch in (EPOCH, EPOCH + 1, EPOCH + 2):
            assert refused(decide(after(decision), EndTxn(PID, epoch, True, 2), server_version)) is PF

    def test_its_holder_that_starts_anew_goes_on(self) -> None:
        command = InitProducerId(30_000, (PID, EPOCH + 1))
        aborting = after(decide(kept(), command))
        assert refused(decide(aborting, command)) is ErrorCode.CONCURRENT_TRANSACTIONS
        aborted = after(decide(aborting, Complete()))
        assert granted(decide(aborted, command)) == (PID, EPOCH + 2)

    def test_without_two_phase_it_times_out(self) -> None:
        """Row T10 holds for a transaction that has a timeout, kept or not."""
        state = kept(command=replace(KEEP, timeout_ms=30_000))
        aborting = after(decide(state, TimeOut(PID, EPOCH)))
        assert isinstance(aborting, PrepareAbort)
        assert refused(decide(after(decide(aborting, Complete())), EndTxn(PID, EPOCH + 1, True, 2))) is PF

    @pytest.mark.parametrize("server_version", [0, 1, 2])
    def test_it_survives_a_restart(self, server_version: int) -> None:
        """Row T14: the successor stands in Kafka's own tags 1 and 3, and forces v1 where v0 would lose it."""
        for state in (kept(), after(decide(kept(), EndTxn(PID, EPOCH + 1, True, 2)))):
            key, value = codec.encode(TxnRecord(TX, state), server_version)
            assert value is not None
            assert value[:2] == b"\x00\x01"
            assert codec.decode(key, value) == TxnRecord(TX, state)


def test_a_two_phase_transaction_never_times_out_by_itself() -> None:
    """Row T22: int32 max is the mark; machine and expiry read it alike."""
    begun = after(machine.decide(TX, Empty(Producer(PID, 0), NO_TIMEOUT_MS, 1), AddPartitions(PID, 0, ON_P0), NOW, 2))
    assert isinstance(begun, Ongoing)
    assert begun.timeout_ms == NO_TIMEOUT_MS == 2**31 - 1
