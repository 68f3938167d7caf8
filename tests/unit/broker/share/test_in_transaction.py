"""What a transaction acknowledges of a share partition: pending until its end decides (after KIP-1289's draft)."""

from collections.abc import Sequence

import pytest

from fencepost.broker.share.change import Change
from fencepost.broker.share.in_flight import AtCommit, InFlightState
from fencepost.broker.share.partition import SharePartition
from fencepost.broker.share.values import AckBatch, AckType, Acquired, DeadCause, DeadLetters, Limits, Refused
from fencepost.coordinator.share.values import DeliveryState, PendingBatch, StateBatch, StoredState
from fencepost.protocol.errors import ErrorCode
from tests.kit.share_partition import DEFAULT, Share

GAP, ACCEPT, RELEASE, REJECT, RENEW = AckType
AVAILABLE, _, ACKNOWLEDGED, ARCHIVING, ARCHIVED, TX_PENDING = DeliveryState
PRODUCER, OTHER = 7, 8


def pend(share: Share, first: int, last: int, *types: int, member: str = "a", producer: int = PRODUCER) -> Change:
    return share.it.acknowledge_in(member, [AckBatch(first, last, types)], producer)


def refused(share: Share, first: int, last: int, *types: int, member: str = "a") -> ErrorCode:
    with pytest.raises(Refused) as caught:
        pend(share, first, last, *types, member=member)
    return caught.value.error


def holding(limits: Limits = DEFAULT) -> Share:
    """A share partition of which member a holds 0 to 9."""
    share = Share(limits)
    share.fetch("a", (0, 9))
    return share


def end(share: Share, *, commit: bool, producer: int = PRODUCER) -> Sequence[StateBatch]:
    return share.store(share.it.resolve(producer, commit))


class TestPending:
    def test_what_is_stored_is_what_becomes_of_them(self) -> None:
        share = holding()
        change = pend(share, 0, 4, ACCEPT, REJECT, GAP, ACCEPT, ACCEPT)
        assert change.batches == [
            StateBatch(0, 0, ACKNOWLEDGED, 1),
            StateBatch(1, 2, ARCHIVED, 1),
            StateBatch(3, 4, ACKNOWLEDGED, 1),
        ]

    def test_they_are_delivered_to_no_member_and_done_for_none(self) -> None:
        share = holding()
        share.store(pend(share, 0, 9, ACCEPT))
        assert share.offsets == (0, 9, 10)
        assert share.it.delivery_complete_count == 0
        assert share.fetch("b", (0, 9)) == []

    def test_no_member_holds_them(self) -> None:
        """Neither an acknowledgement, nor a member that leaves, nor the end of its lock changes them."""
        share = holding()
        share.store(pend(share, 0, 9, ACCEPT))
        with pytest.raises(Refused):
            share.say("a", 0, 9, RELEASE)
        assert not share.it.release("a")
        assert share.wait(60_000) == []
        assert share.offsets == (0, 9, 10)

    def test_a_part_of_a_batch_is_as_pending_as_the_whole(self) -> None:
        state = InFlightState(DeliveryState.ACQUIRED, 1, "a")
        state.pend(AtCommit(PRODUCER, ACKNOWLEDGED))
        part = state.copy()
        assert (part.state, part.at_commit) == (TX_PENDING, AtCommit(PRODUCER, ACKNOWLEDGED))

    def test_they_count_as_in_flight(self) -> None:
        share = Share(Limits(max_in_flight=10))
        share.fetch("a", (0, 9))
        share.store(pend(share, 0, 9, ACCEPT))
        assert not share.it.can_acquire()

    def test_the_log_start_passes_them(self) -> None:
        """Retention does not decide: a commit counts below the start, an abort gives nothing back."""
        for commit in (True, False):
            share = holding()
            share.store(pend(share, 0, 9, ACCEPT))
            share.it.log_start_moved(5)
            end(share, commit=commit)
            assert share.offsets == ((10, 10, 10) if commit else (5, 9, 5))
            assert share.it.delivery_complete_count == 0


class TestRefused:
    def test_what_the_member_does_not_hold(self) -> None:
        share = holding()
        assert refused(share, 0, 9, ACCEPT, member="b") is ErrorCode.INVALID_RECORD_STATE
        assert refused(share, 8, 12, ACCEPT) is ErrorCode.INVALID_REQUEST, "never acquired"

    def test_what_lies_between(self) -> None:
        """Offsets that the log did not give: no member holds them."""
        share = Share()
        share.fetch("b", (0, 9))
        share.fetch("a", (12, 19))
        assert refused(share, 10, 12, ACCEPT) is ErrorCode.INVALID_RECORD_STATE

    def test_what_is_done_already(self) -> None:
        """Without a transaction it is no error; here another member's output may count already."""
        share = holding()
        share.wait(30_000)
        share.fetch("b", (0, 9))
        share.ack("b", 0, 9, ACCEPT)
        assert refused(share, 0, 9, ACCEPT) is ErrorCode.INVALID_RECORD_STATE

    def test_after_the_lock_ended(self) -> None:
        share = holding()
        share.wait(30_000)
        assert refused(share, 0, 9, ACCEPT) is ErrorCode.INVALID_RECORD_STATE

    def test_what_another_transaction_has(self) -> None:
        share = holding()
        share.store(pend(share, 0, 9, ACCEPT, producer=OTHER))
        assert refused(share, 0, 9, ACCEPT) is ErrorCode.INVALID_RECORD_STATE

    def test_nothing_of_a_refused_request_is_pending(self) -> None:
        share = holding()
        with pytest.raises(Refused):
            share.it.acknowledge_in("a", [AckBatch(0, 3, [ACCEPT]), AckBatch(4, 12, [ACCEPT])], PRODUCER)
        assert share.ack("a", 0, 9, ACCEPT) == [StateBatch(0, 9, ACKNOWLEDGED, 1)]

    def test_the_log_refuses(self) -> None:
        """A fenced producer: the member holds them as before, until its lock ends."""
        share = holding()
        pend(share, 0, 9, ACCEPT).settle(False)
        assert share.wait(30_000) == [StateBatch(0, 9, AVAILABLE, 1)]


class TestRepeated:
    """A client that got no answer asks again."""

    def test_the_same_changes_nothing(self) -> None:
        share = holding()
        share.store(pend(share, 0, 4, ACCEPT))
        share.store(pend(share, 5, 9, REJECT))
        assert not pend(share, 0, 4, ACCEPT)
        assert not pend(share, 5, 9, REJECT, REJECT, REJECT, REJECT, REJECT)
        assert not pend(share, 2, 3, ACCEPT)

    def test_another_type_is_refused(self) -> None:
        share = holding()
        share.store(pend(share, 0, 9, ACCEPT))
        assert refused(share, 0, 9, REJECT) is ErrorCode.INVALID_RECORD_STATE


class TestEnd:
    def test_a_commit(self) -> None:
        """They are done, and the start offset moves at once: the marker is durable."""
        share = holding()
        share.store(pend(share, 0, 3, ACCEPT, REJECT, GAP, ACCEPT))
        change = share.it.resolve(PRODUCER, True)
        assert change.start_offset == 4
        assert share.store(change) == [
            StateBatch(0, 0, ACKNOWLEDGED, 1),
            StateBatch(1, 2, ARCHIVED, 1),
            StateBatch(3, 3, ACKNOWLEDGED, 1),
        ]
        assert share.offsets == (4, 9, 10)

    def test_an_abort(self) -> None:
        """They are available at once, and their delivery counts."""
        share = holding()
        share.store(pend(share, 2, 9, ACCEPT))
        assert end(share, commit=False) == [StateBatch(2, 9, AVAILABLE, 1)]
        assert share.offsets == (0, 9, 2)
        assert share.fetch("b", (0, 9)) == [Acquired(2, 9, 2)]

    def test_an_abort_after_the_last_delivery(self) -> None:
        """group.share.delivery.count.limit: as a release. A record that members fail on ends."""
        share = holding(Limits(delivery_count_limit=1))
        share.store(pend(share, 0, 9, ACCEPT))
        assert end(share, commit=False) == [StateBatch(0, 9, ARCHIVED, 1)]
        assert share.offsets == (10, 10, 10)

    def test_it_counts_even_if_it_cannot_be_stored(self) -> None:
        """The marker decides, and the share coordinator has applied it; the leader's own record only says it again."""
        share = holding()
        share.store(pend(share, 0, 9, ACCEPT))
        share.it.resolve(PRODUCER, True).settle(False)
        assert share.offsets == (10, 10, 10)

    def test_only_what_the_transaction_has(self) -> None:
        share = holding()
        share.store(pend(share, 0, 3, ACCEPT))
        share.store(pend(share, 4, 6, ACCEPT, producer=OTHER))
        assert end(share, commit=False, producer=OTHER) == [StateBatch(4, 6, AVAILABLE, 1)]
        assert not share.it.resolve(OTHER, True)
        share.store(share.it.release("a"))
        assert end(share, commit=True) == [StateBatch(0, 3, ACKNOWLEDGED, 1)]
        assert share.offsets == (4, 9, 4)

    def test_dead_letters_come_with_the_commit(self) -> None:
        """KIP-1191: what a transaction rejects goes to the dead-letter topic when the transaction commits."""
        share = holding(Limits(dead_letters=True))
        change = pend(share, 0, 0, REJECT)
        assert change.batches == [StateBatch(0, 0, ARCHIVING, 1)]
        share.store(change)
        assert share.dead == []
        end(share, commit=True)
        assert share.dead == [DeadLetters(0, 0, 1, DeadCause.REJECTED)]


class TestAskedFor:
    """Where another broker keeps the state: no one informs the leader of the end, so it reads the state."""

    def test_not_while_they_are_being_stored(self) -> None:
        """The share coordinator may not have them yet, so that it says nothing of them."""
        share = holding()
        change = pend(share, 0, 4, ACCEPT)
        assert share.it.undecided() == []
        share.store(change)
        assert [one[:2] for one in share.it.undecided()] == [(offset, offset) for offset in range(5)]

    def test_the_state_that_the_marker_gave_them(self) -> None:
        share = holding()
        share.store(pend(share, 0, 9, ACCEPT))
        stored = StateBatch(0, 2, ACKNOWLEDGED, 1), StateBatch(3, 6, TX_PENDING, 1), StateBatch(7, 9, AVAILABLE, 1)
        change = share.it.resolve_as_stored(share.it.undecided(), StoredState(batches=stored))
        assert share.store(change) == [StateBatch(0, 2, ACKNOWLEDGED, 1), StateBatch(7, 9, AVAILABLE, 1)]
        assert share.offsets == (3, 9, 7)
        assert [one[:2] for one in share.it.undecided()] == [(offset, offset) for offset in range(3, 7)]

    def test_what_is_not_known_there_is_available(self) -> None:
        share = holding()
        share.store(pend(share, 0, 9, ACCEPT))
        assert share.store(share.it.resolve_as_stored(share.it.undecided(), StoredState())) == [
            StateBatch(0, 9, AVAILABLE, 1)
        ]

    def test_what_was_acknowledged_again_since_is_left(self) -> None:
        """The producer's next transaction has them by now: what was read is of the one before."""
        share = holding()
        share.store(pend(share, 0, 9, ACCEPT))
        asked = share.it.undecided()
        again = pend_again(share, 0, 9)
        assert not share.it.resolve_as_stored(asked, StoredState())
        share.store(again)
        assert not share.it.resolve_as_stored(asked, StoredState())
        assert share.it.resolve_as_stored(share.it.undecided(), StoredState())

    def test_again_and_refused(self) -> None:
        """They stay as they were."""
        share = holding()
        share.store(pend(share, 0, 9, ACCEPT))
        again = pend_again(share, 0, 9)
        assert again.batches == [StateBatch(0, 9, ACKNOWLEDGED, 1)]
        again.settle(False)
        assert end(share, commit=True) == [StateBatch(0, 9, ACKNOWLEDGED, 1)]

    def test_refused_after_the_lock_ended(self) -> None:
        """InFlightState.completeStateTransition: the member does not hold them any more."""
        share = holding()
        change = pend(share, 0, 9, ACCEPT)
        assert share.wait(60_000) == []
        change.settle(False)
        assert share.fetch("b", (0, 9)) == [Acquired(0, 9, 2)]


def pend_again(share: Share, first: int, last: int) -> Change:
    return share.it.acknowledge_in("a", [AckBatch(first, last, [ACCEPT])], PRODUCER, again=True)


class TestRestored:
    @pytest.mark.parametrize("commit", [True, False])
    def test_they_are_held_back_until_the_end(self, commit: bool) -> None:
        """A leader that begins knows what is pending, whose transaction it is, and what becomes of it."""
        it = SharePartition(Limits)
        accepted, rejected = StateBatch(3, 6, ACKNOWLEDGED, 2), StateBatch(7, 9, ARCHIVED, 2)
        stored = StoredState(
            state_epoch=7,
            start_offset=0,
            batches=(StateBatch(0, 2, ACKNOWLEDGED, 1), StateBatch(3, 9, TX_PENDING, 2)),
            pending=(PendingBatch(PRODUCER, accepted), PendingBatch(OTHER, rejected)),
        )
        it.restore(stored, 0)
        assert (it.start_offset, it.end_offset, it.next_fetch_offset()) == (3, 9, 10)
        change = it.resolve(PRODUCER, commit)
        assert change.batches == [accepted if commit else StateBatch(3, 6, AVAILABLE, 2)]
        assert (it.start_offset, it.next_fetch_offset()) == ((7, 10) if commit else (3, 3))

    def test_what_lies_below_the_start_is_gone(self) -> None:
        it = SharePartition(Limits)
        below, across = StateBatch(3, 4, ACKNOWLEDGED, 1), StateBatch(5, 9, ACKNOWLEDGED, 1)
        pending = (PendingBatch(PRODUCER, across), PendingBatch(PRODUCER, below))
        it.restore(StoredState(start_offset=7, batches=(StateBatch(7, 9, TX_PENDING, 1),), pending=pending), 0)
        assert it.resolve(PRODUCER, False).batches == [StateBatch(7, 9, AVAILABLE, 1)]


def test_a_transaction_that_ends_first_hides_nothing_that_was_stored_as_available() -> None:
    """SharePartition.maybeInitialize: the first fetch looks at all that is stored. Found by simulated world 30182."""
    it = SharePartition(Limits)
    batches = (StateBatch(0, 0, DeliveryState.AVAILABLE, 1), StateBatch(1, 1, DeliveryState.TX_PENDING, 1))
    pending = (PendingBatch(7, StateBatch(1, 1, DeliveryState.ACKNOWLEDGED, 1)),)
    it.restore(StoredState(state_epoch=1, start_offset=0, batches=batches, pending=pending), 0)
    it.resolve(7, commit=False).settle(True)
    assert it.next_fetch_offset() == 0
