"""The window of a share partition: what was stored, where the log begins, and how much it takes (KIP-932)."""

import pytest

from fencepost.broker.share.partition import SharePartition
from fencepost.broker.share.values import Acquired, AcquireMode, DeadCause, DeadLetters, Limits
from fencepost.coordinator.share.values import UNINITIALIZED, DeliveryState, StateBatch, StoredState
from tests.kit.share_partition import Share

ACCEPT, RELEASE = 1, 2
AVAILABLE, _, ACKNOWLEDGED, ARCHIVING, ARCHIVED, _ = DeliveryState


class TestRestored:
    def test_without_a_stored_start_it_begins_where_the_group_is_to_begin(self) -> None:
        """SharePartition.startOffsetDuringInitialization: share.auto.offset.reset; -1 is no stored start."""
        it = SharePartition(Limits)
        assert it.restore(StoredState(state_epoch=3, start_offset=UNINITIALIZED), 42) == ()
        assert (it.start_offset, it.end_offset, it.next_fetch_offset(), it.state_epoch) == (42, 42, 42, 3)

    def test_what_was_stored(self) -> None:
        """SharePartition.maybeInitialize: delivery counts are kept, and done records at the start are passed."""
        share = Share(
            start=10,
            stored=[
                StateBatch(10, 14, ACKNOWLEDGED, 1),
                StateBatch(15, 19, AVAILABLE, 3),
                StateBatch(20, 29, ARCHIVED, 5),
            ],
        )
        assert share.offsets == (15, 29, 15)
        assert share.it.delivery_complete_count == 10
        assert share.fetch("a", (15, 19)) == [Acquired(15, 16, 4)]

    def test_holes_are_read_again(self) -> None:
        """SharePartition.GapWindow: what was acquired but never stored lies in holes of the stored state."""
        share = Share(start=0, stored=[StateBatch(5, 9, ACKNOWLEDGED, 1), StateBatch(12, 14, AVAILABLE, 1)])
        assert share.offsets == (0, 14, 0)
        assert share.fetch("a", (0, 9), (10, 14)) == [Acquired(0, 4, 1), Acquired(10, 11, 1), Acquired(12, 14, 2)]
        share.ack("a", 0, 4, ACCEPT)
        assert share.offsets[0] == 10

    def test_the_start_does_not_pass_a_hole(self) -> None:
        """SharePartition.findLastOffsetAcknowledgedAndMetadata: isPersisterReadGapWindowActive."""
        share = Share(start=0, stored=[StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(8, 9, ACKNOWLEDGED, 1)])
        assert share.offsets == (5, 9, 5)

    def test_dead_letters_that_were_not_written(self) -> None:
        """SharePartition.maybeResumeDlqArchiving (KIP-1191): the cause follows from the delivery count."""
        share = Share(start=0, stored=[StateBatch(0, 0, ARCHIVING, 5), StateBatch(1, 1, ARCHIVING, 1)])
        assert share.dead == [DeadLetters(0, 0, 5, DeadCause.LIMIT), DeadLetters(1, 1, 1, DeadCause.REJECTED)]
        for dead in share.dead:
            share.it.archive(dead).settle(True)
        assert share.offsets == (2, 2, 2)

    @pytest.mark.parametrize("batch", [StateBatch(3, 8, AVAILABLE, 1), StateBatch(9, 8, AVAILABLE, 1)])
    def test_a_state_that_cannot_be(self, batch: StateBatch) -> None:
        """SharePartition.maybeInitialize: IllegalStateException, and the share partition cannot be used."""
        with pytest.raises(ValueError, match="cannot begin at 5"):
            Share(start=5, stored=[batch])


class TestLogStartMoves:
    def test_nothing_in_flight(self) -> None:
        """SharePartition.updateCacheAndOffsets with an empty cache; a start that is not later changes nothing."""
        share = Share(start=5)
        share.it.log_start_moved(3)
        assert share.offsets == (5, 5, 5)
        share.it.log_start_moved(50)
        assert share.offsets == (50, 50, 50)

    def test_available_records_are_archived_and_the_start_moves(self) -> None:
        """SharePartition.archiveAvailableRecordsOnLsoMovement; done records no longer count as complete."""
        share = Share()
        share.fetch("a", (0, 9), (10, 19))
        share.ack("a", 1, 9, ACCEPT, *[RELEASE] * 6, ACCEPT, ACCEPT)
        assert share.it.delivery_complete_count == 3
        share.it.log_start_moved(5)
        assert share.offsets == (5, 19, 5)
        assert share.it.delivery_complete_count == 2

    def test_what_a_member_holds_stays_its_own(self) -> None:
        """SharePartition.updateCacheAndOffsets: acquired records are archived only when their delivery ends."""
        share = Share()
        share.fetch("a", (0, 9))
        share.it.log_start_moved(5)
        assert share.offsets == (5, 9, 10)
        assert share.wait(30_000) == [StateBatch(0, 4, ARCHIVED, 1), StateBatch(5, 9, AVAILABLE, 1)]
        assert share.offsets == (5, 9, 5)

    def test_acknowledgements_of_what_is_gone_are_accepted(self) -> None:
        """SharePartition.acknowledgePerOffsetBatchRecords: offsets below the start offset are skipped."""
        share = Share()
        share.fetch("a", (0, 9))
        share.it.log_start_moved(5)
        assert share.ack("a", 0, 9, ACCEPT) == [StateBatch(5, 9, ACKNOWLEDGED, 1)]
        share.wait(30_000)
        assert share.offsets == (10, 10, 10)

    def test_beyond_what_is_in_flight(self) -> None:
        """SharePartition.updateCacheAndOffsets: the end offset is never below the start offset."""
        share = Share()
        share.fetch("a", (0, 9))
        share.it.log_start_moved(15)
        assert share.offsets == (15, 15, 15)
        assert share.fetch("b", (15, 19)) == [Acquired(15, 19, 1)]
        assert share.store(share.it.release("a")) == [StateBatch(0, 9, ARCHIVED, 1)]
        share.ack("b", 15, 19, ACCEPT)
        assert share.offsets == (20, 20, 20)

    def test_what_was_being_released_is_not_available_when_that_is_rolled_back(self) -> None:
        """InFlightState.archive: isTerminalState outlasts the rollback."""
        share = Share()
        share.fetch("a", (0, 9))
        change = share.say("a", 0, 9, RELEASE)
        share.it.log_start_moved(20)
        change.settle(False)
        assert share.offsets == (20, 20, 20)

    def test_a_batch_cut_while_it_is_being_released(self) -> None:
        """InFlightBatch.maybeInitializeOffsetStateUpdate loses the transition: the rest may be acquired at once.

        Ours alone: Kafka throws there, for the records have kept the lock of the member that released them.
        """
        share = Share()
        share.fetch("a", (0, 9))
        change = share.say("a", 0, 9, RELEASE)
        share.it.log_start_moved(5)
        assert share.fetch("b", (0, 9)) == [Acquired(5, 9, 2)]
        share.store(change)
        assert share.ack("b", 5, 9, ACCEPT) == [StateBatch(5, 9, ACKNOWLEDGED, 2)]

    def test_a_start_between_batches(self) -> None:
        """Ours alone: SharePartition.canMoveStartOffset throws here, and the start offset never moves again."""
        share = Share()
        share.fetch("a", (0, 4))
        share.ack("a", 1, 1, ACCEPT)
        share.fetch("a", (10, 14))
        share.it.log_start_moved(7)
        share.store(share.it.release("a"))
        assert share.it.next_fetch_offset() == 10
        share.fetch("b", (10, 14))
        share.ack("b", 10, 14, ACCEPT)
        assert share.offsets == (15, 15, 15)


class TestMuchInFlight:
    def test_thousands_of_batches_come_and_go(self) -> None:
        """Batches that are done are let go of, as are the locks that they had."""
        share = Share(Limits(max_in_flight=1_000_000))
        for offset in range(3000):
            assert share.fetch("ab"[offset % 2], (offset, offset)) == [Acquired(offset, offset, 1)]
        for offset in range(2900):
            share.ack("ab"[offset % 2], offset, offset, ACCEPT)
        assert (share.it.start_offset, share.it.in_flight) == (2900, 100)
        for offset in range(3000, 5000):
            share.fetch("c", (offset, offset))
            share.ack("c", offset, offset, RELEASE)
            share.fetch("c", (offset, offset))
        assert share.it.in_flight == 2100
        assert len(share.wait(30_000)) == 2
        assert share.it.next_expiry() is None

    def test_a_large_batch_in_parts(self) -> None:
        """A batch of which a part is settled gives states only to these records."""
        share = Share(Limits(max_in_flight=10**7))
        share.fetch("a", (0, 10**6 - 1), most=10, mode=AcquireMode.RECORD_LIMIT)
        for offset in range(10):
            share.ack("a", offset, offset, ACCEPT)
        assert share.offsets == (10, 10**6 - 1, 10)
        batch = share.it._window.batches.first
        assert batch.offsets is not None
        assert len(set(map(id, batch.offsets))) == 11
