"""The rules of one transactional id (rows P6, P12, T2, T3, T7, T10, T12, T15 of Kafka's rules; KIP-360, KIP-890)."""

from dataclasses import replace

import pytest

from fencepost.coordinator.ports import Marker
from fencepost.coordinator.txn.commands import (
    NEEDS_PRODUCER_ID,
    AddPartitions,
    Answer,
    Complete,
    EndTxn,
    Expire,
    InitProducerId,
    TimeOut,
    VerifyPartitions,
)
from fencepost.coordinator.txn.state import (
    DEAD,
    MAY_FOLLOW,
    PHASES,
    CompleteAbort,
    CompleteCommit,
    Dead,
    Empty,
    Ongoing,
    PrepareAbort,
    Producer,
    TxnState,
    marker_of,
)
from fencepost.protocol.errors import ErrorCode
from tests.unit.txn.kit import P0, P1
from tests.unit.txn.states import (
    ABORTING,
    ALL,
    COMMITTING,
    EMPTY,
    EPOCH,
    FRESH,
    HELD,
    IDLE,
    NOW,
    ON_P0,
    ONGOING,
    PID,
    after,
    decide,
    granted,
    name_of,
    refused,
    with_producer,
)


class TestInitProducerId:
    """Rows T2 and P6."""

    def test_an_unknown_id_needs_a_producer_id_and_starts_at_epoch_0(self) -> None:
        assert decide(DEAD, InitProducerId(60_000)).reply is NEEDS_PRODUCER_ID
        decision = decide(DEAD, InitProducerId(60_000, fresh_producer_id=FRESH))
        assert granted(decision) == (FRESH, 0)
        assert after(decision) == Empty(Producer(FRESH, 0, FRESH), 60_000, NOW)

    def test_an_unknown_id_takes_a_producer_that_shows_an_identity_it_once_had(self) -> None:
        """The id has expired: T2 lets a foreign producer id in while the entry is brand-new."""
        decision = decide(DEAD, InitProducerId(60_000, (PID, EPOCH), FRESH))
        assert granted(decision) == (FRESH, 0)

    @pytest.mark.parametrize("state", IDLE, ids=name_of)
    def test_a_newcomer_bumps_the_epoch_and_the_one_before_is_fenced_for_good(self, state: TxnState) -> None:
        decision = decide(state, InitProducerId(30_000))
        assert granted(decision) == (PID, EPOCH + 1)
        assert after(decision) == Empty(Producer(PID, EPOCH + 1, PID, -1), 30_000, NOW)
        assert refused(decide(after(decision), InitProducerId(30_000, (PID, EPOCH)))) is ErrorCode.PRODUCER_FENCED

    @pytest.mark.parametrize("state", IDLE, ids=name_of)
    def test_the_holder_bumps_its_epoch_and_its_retry_gets_the_same_answer(self, state: TxnState) -> None:
        """KIP-360: expected epoch == current bumps; == last epoch repeats the answer."""
        first = decide(state, InitProducerId(30_000, (PID, EPOCH)))
        assert granted(first) == (PID, EPOCH + 1)
        assert after(first) == Empty(Producer(PID, EPOCH + 1, PID, EPOCH), 30_000, NOW)
        again = decide(after(first), InitProducerId(30_000, (PID, EPOCH)))
        assert granted(again) == (PID, EPOCH + 1)
        assert after(again) == after(first)

    @pytest.mark.parametrize("state", IDLE, ids=name_of)
    @pytest.mark.parametrize("expected", [(PID, EPOCH - 2), (PID, EPOCH + 1), (8, EPOCH), (8, EPOCH - 1)], ids=str)
    def test_any_other_identity_is_fenced(self, state: TxnState, expected: tuple[int, int]) -> None:
        assert refused(decide(state, InitProducerId(30_000, expected))) is ErrorCode.PRODUCER_FENCED

    @pytest.mark.parametrize("state", IDLE, ids=name_of)
    @pytest.mark.parametrize("epoch", [32766, 32767])
    def test_an_exhausted_epoch_changes_to_a_fresh_producer_id(self, state: TxnState, epoch: int) -> None:
        """Row P12. The retry shows the old identity and finds its answer again."""
        worn = with_producer(state, Producer(PID, epoch, PID, -1))
        command = InitProducerId(30_000, (PID, epoch))
        assert decide(worn, command).reply is NEEDS_PRODUCER_ID
        decision = decide(worn, replace(command, fresh_producer_id=FRESH))
        assert granted(decision) == (FRESH, 0)
        assert after(decision) == Empty(Producer(FRESH, 0, PID, epoch), 30_000, NOW)
        assert granted(decide(after(decision), command)) == (FRESH, 0)

    def test_a_newcomer_over_an_exhausted_epoch_leaves_no_way_back_for_the_old_one(self) -> None:
        worn = with_producer(EMPTY, Producer(PID, 32766, PID, -1))
        decision = decide(worn, InitProducerId(30_000, None, FRESH))
        assert after(decision) == Empty(Producer(FRESH, 0, PID, -1), 30_000, NOW)
        again = decide(after(decision), InitProducerId(30_000, (PID, 32766)))
        assert refused(again) is ErrorCode.PRODUCER_FENCED

    def test_an_epoch_below_the_last_is_still_bumped(self) -> None:
        worn = with_producer(EMPTY, Producer(PID, 32765, PID, -1))
        assert granted(decide(worn, InitProducerId(30_000))) == (PID, 32766)

    @pytest.mark.parametrize("state", [COMMITTING, ABORTING], ids=name_of)
    def test_a_decided_transaction_is_waited_for(self, state: TxnState) -> None:
        for expected in (None, (PID, EPOCH), (PID, EPOCH - 1)):
            assert refused(decide(state, InitProducerId(1, expected))) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert refused(decide(state, InitProducerId(1, (8, 0)))) is ErrorCode.PRODUCER_FENCED

    @pytest.mark.parametrize(("server_version", "stamp"), [(0, 0), (1, 0), (2, 2)])
    def test_a_newcomer_aborts_the_open_transaction_under_an_epoch_no_client_has(
        self, server_version: int, stamp: int
    ) -> None:
        """Row T2, and one bump only (KAFKA-19367)."""
        decision = decide(ONGOING, InitProducerId(30_000), server_version)
        assert decision.reply == Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert after(decision) == PrepareAbort(
            Producer(PID, EPOCH + 1, PID, -1), 60_000, ON_P0, ONGOING.started_ms, NOW, stamp
        )
        assert marker_of(after(decision), 0) == Marker(PID, EPOCH + 1, False, 0, stamp)

    def test_the_holder_that_comes_back_over_its_open_transaction_goes_on_with_the_epoch_of_the_abort(self) -> None:
        for server_version in (0, 2):
            aborting = after(decide(ONGOING, InitProducerId(30_000, (PID, EPOCH)), server_version))
            aborted = after(decide(aborting, Complete(), server_version))
            decision = decide(aborted, InitProducerId(30_000, (PID, EPOCH)), server_version)
            assert granted(decision) == (PID, EPOCH + 1)

    def test_the_reserved_epoch_of_an_abort_is_never_granted(self) -> None:
        """Row P12, found by the property test: before TV2 the abort does not bring a fresh producer id."""
        worn = with_producer(ONGOING, Producer(PID, 32766, PID, -1))
        command = InitProducerId(30_000, (PID, 32766))
        aborted = after(decide(after(decide(worn, command, 0)), Complete(), 0))
        assert decide(aborted, command, 0).reply is NEEDS_PRODUCER_ID
        decision = decide(aborted, replace(command, fresh_producer_id=FRESH), 0)
        assert granted(decision) == (FRESH, 0)
        assert granted(decide(after(decision), command, 0)) == (FRESH, 0), "its retry finds the same"

    @pytest.mark.parametrize("expected", [(PID, EPOCH - 2), (PID, EPOCH + 1), (8, EPOCH)], ids=str)
    def test_a_zombie_can_not_abort_the_open_transaction_of_the_living(self, expected: tuple[int, int]) -> None:
        """Stricter than Kafka, which aborts first and fences afterwards."""
        assert refused(decide(ONGOING, InitProducerId(1, expected))) is ErrorCode.PRODUCER_FENCED

    def test_a_late_copy_of_an_old_request_can_not_abort_the_transaction_begun_since(self) -> None:
        decision = decide(ONGOING, InitProducerId(1, (PID, EPOCH - 1)))
        assert granted(decision) == (PID, EPOCH)
        assert decision.log == ()

    @pytest.mark.parametrize("server_version", [0, 2])
    def test_the_abort_at_the_last_epoch_uses_the_reserved_one(self, server_version: int) -> None:
        """Row P12, KAFKA-20090."""
        worn = with_producer(ONGOING, Producer(PID, 32766, PID, 32765))
        if server_version == 2:
            assert decide(worn, InitProducerId(30_000), 2).reply is NEEDS_PRODUCER_ID
        state = after(decide(worn, InitProducerId(30_000, None, FRESH), server_version))
        assert isinstance(state, PrepareAbort)
        assert state.producer == Producer(PID, 32767, PID, -1)
        assert state.next_producer_id == (FRESH if server_version == 2 else -1)
        aborted = after(decide(state, Complete(), server_version))
        decision = decide(aborted, InitProducerId(30_000, None, 100), server_version)
        assert granted(decision) == ((FRESH, 1) if server_version == 2 else (100, 0))


class TestAddPartitions:
    """Rows T3, T4 and T16."""

    def test_an_unknown_id_or_a_foreign_producer_id_is_no_mapping(self) -> None:
        assert refused(decide(DEAD, AddPartitions(PID, EPOCH, ON_P0))) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        for state in ALL[1:]:
            decision = decide(state, AddPartitions(8, EPOCH, ON_P0))
            assert refused(decision) is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    @pytest.mark.parametrize("state", ALL[1:], ids=name_of)
    @pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
    def test_another_epoch_is_fenced_in_every_state(self, state: TxnState, epoch: int) -> None:
        assert refused(decide(state, AddPartitions(PID, epoch, ON_P0))) is ErrorCode.PRODUCER_FENCED

    @pytest.mark.parametrize("state", [COMMITTING, ABORTING], ids=name_of)
    def test_a_decided_transaction_is_waited_for(self, state: TxnState) -> None:
        assert refused(decide(state, AddPartitions(PID, EPOCH, ON_P0))) is ErrorCode.CONCURRENT_TRANSACTIONS

    @pytest.mark.parametrize("state", IDLE, ids=name_of)
    @pytest.mark.parametrize("client_version", [0, 2])
    def test_the_first_partition_begins_the_transaction(self, state: TxnState, client_version: int) -> None:
        decision = decide(state, AddPartitions(PID, EPOCH, ON_P0, client_version))
        assert decision.reply == Answer()
        assert after(decision) == Ongoing(HELD, 60_000, ON_P0, NOW, NOW, client_version)

    def test_more_partitions_join_and_the_start_stays(self) -> None:
        decision = decide(ONGOING, AddPartitions(PID, EPOCH, frozenset({P1}), 2))
        assert after(decision) == replace(ONGOING, partitions=frozenset({P0, P1}), updated_ms=NOW)

    def test_partitions_that_are_there_cost_no_write(self) -> None:
        assert refused(decide(ONGOING, AddPartitions(PID, EPOCH, ON_P0, 2))) is ErrorCode.NONE

    @pytest.mark.parametrize("state", [*IDLE, ONGOING], ids=name_of)
    def test_no_partitions_begin_nothing(self, state: TxnState) -> None:
        assert refused(decide(state, AddPartitions(PID, EPOCH, frozenset()))) is ErrorCode.NONE


class TestVerifyPartitions:
    """Row T15."""

    def test_it_finds_what_is_there_and_writes_nothing(self) -> None:
        decision = decide(ONGOING, VerifyPartitions(PID, EPOCH, frozenset({P0, P1})))
        assert decision.reply == Answer(missing=frozenset({P1}))
        assert decision.log == ()

    @pytest.mark.parametrize("state", IDLE, ids=name_of)
    def test_without_an_open_transaction_all_are_missing(self, state: TxnState) -> None:
        assert decide(state, VerifyPartitions(PID, EPOCH, ON_P0)).reply == Answer(missing=ON_P0)

    def test_identity_is_checked_as_for_adding(self) -> None:
        assert refused(decide(DEAD, VerifyPartitions(PID, EPOCH, ON_P0))) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        for state in ALL[1:]:
            foreign = decide(state, VerifyPartitions(8, EPOCH, ON_P0))
            assert refused(foreign) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            assert refused(decide(state, VerifyPartitions(PID, EPOCH - 1, ON_P0))) is ErrorCode.PRODUCER_FENCED
        for state in (COMMITTING, ABORTING):
            decision = decide(state, VerifyPartitions(PID, EPOCH, ON_P0))
            assert refused(decision) is ErrorCode.CONCURRENT_TRANSACTIONS


class TestTimeOut:
    """Row T10."""

    @pytest.mark.parametrize(("server_version", "last_epoch", "stamp"), [(0, -1, 0), (1, -1, 0), (2, EPOCH, 2)])
    def test_the_epoch_is_bumped_first(self, server_version: int, last_epoch: int, stamp: int) -> None:
        """Row T11: before TV2 the timed-out producer is fenced for good, with it it may go on."""
        decision = decide(ONGOING, TimeOut(PID, EPOCH), server_version)
        aborting = after(decision)
        assert aborting == PrepareAbort(
            Producer(PID, EPOCH + 1, PID, last_epoch), 60_000, ON_P0, ONGOING.started_ms, NOW, stamp
        )
        aborted = after(decide(aborting, Complete(), server_version))
        for commit in (True, False):
            late = decide(aborted, EndTxn(PID, EPOCH, commit, 0), server_version)
            assert refused(late) is ErrorCode.PRODUCER_FENCED
        assert refused(decide(aborted, AddPartitions(PID, EPOCH, ON_P0))) is ErrorCode.PRODUCER_FENCED
        back = decide(aborted, InitProducerId(60_000, (PID, EPOCH)), server_version)
        if server_version == 2:
            assert granted(back) == (PID, EPOCH + 1)
        else:
            assert refused(back) is ErrorCode.PRODUCER_FENCED

    @pytest.mark.parametrize("state", [state for state in ALL if state is not ONGOING], ids=name_of)
    def test_a_transaction_that_has_ended_meanwhile_is_left_alone(self, state: TxnState) -> None:
        assert refused(decide(state, TimeOut(PID, EPOCH))) is ErrorCode.NONE

    def test_the_transaction_after_the_late_one_is_left_alone(self) -> None:
        assert refused(decide(ONGOING, TimeOut(PID, EPOCH - 1))) is ErrorCode.NONE

    def test_the_last_epoch_needs_a_fresh_producer_id(self) -> None:
        worn = with_producer(ONGOING, Producer(PID, 32766, PID, 32765))
        assert decide(worn, TimeOut(PID, 32766)).reply is NEEDS_PRODUCER_ID
        aborting = after(decide(worn, TimeOut(PID, 32766, FRESH)))
        aborted = after(decide(aborting, Complete()))
        assert isinstance(aborted, CompleteAbort)
        assert aborted.producer == Producer(FRESH, 0, PID, 32766)


class TestComplete:
    """Row T7: PREPARE_x becomes COMPLETE_x, and nothing else does."""

    @pytest.mark.parametrize(("state", "made"), [(COMMITTING, CompleteCommit), (ABORTING, CompleteAbort)], ids=name_of)
    def test_the_outcome_stays_what_was_decided(self, state: TxnState, made: type[TxnState]) -> None:
        done = after(decide(state, Complete()))
        assert type(done) is made
        assert done.producer == HELD  # type: ignore[union-attr]

    @pytest.mark.parametrize("state", [*IDLE, ONGOING, DEAD], ids=name_of)
    def test_nothing_else_can_be_completed(self, state: TxnState) -> None:
        with pytest.raises(AssertionError, match="nothing to complete"):
            decide(state, Complete())


class TestExpire:
    """Row T12."""

    @pytest.mark.parametrize("state", IDLE, ids=name_of)
    def test_an_unused_id_is_forgotten(self, state: TxnState) -> None:
        assert after(decide(state, Expire(state.updated_ms))) is DEAD  # type: ignore[union-attr]

    @pytest.mark.parametrize("state", IDLE, ids=name_of)
    def test_an_id_that_was_used_meanwhile_stays(self, state: TxnState) -> None:
        assert decide(state, Expire(1)).log == ()

    @pytest.mark.parametrize("state", [ONGOING, COMMITTING, ABORTING, DEAD], ids=name_of)
    def test_an_id_with_a_transaction_stays(self, state: TxnState) -> None:
        updated_ms = 0 if isinstance(state, Dead) else state.updated_ms
        assert decide(state, Expire(updated_ms)).log == ()


def test_the_arrows_are_kafkas() -> None:
    """Row T7's table of valid previous states, read the other way round."""
    previous = {phase.name: {before.name for before in PHASES if phase in MAY_FOLLOW[before]} for phase in PHASES}
    idle = {"Empty", "CompleteCommit", "CompleteAbort"}
    assert previous == {
        "Empty": idle | {"Dead"},
        "Ongoing": idle | {"Ongoing"},
        "PrepareCommit": {"Ongoing"},
        "PrepareAbort": idle | {"Ongoing"},
        "CompleteCommit": {"PrepareCommit"},
        "CompleteAbort": {"PrepareAbort"},
        "Dead": idle,
    }
