"""Which records of a share partition a member acquires (KIP-932, Kafka's SharePartition.acquire)."""

import pytest

from fencepost.broker.share.values import Acquired, AcquireMode, Limits
from fencepost.coordinator.share.values import DeliveryState, StateBatch
from tests.kit.share_partition import Share

ACCEPT, RELEASE = 1, 2
LIMITED = AcquireMode.RECORD_LIMIT


class TestNewRecords:
    def test_what_one_member_holds_no_other_gets(self) -> None:
        """KIP-932, In-flight records: an acquired record is not available to others until its lock ends."""
        share = Share()
        assert share.fetch("a", (0, 9)) == [Acquired(0, 9, 1)]
        assert share.it.next_fetch_offset() == 10
        assert share.fetch("b", (0, 9), (10, 19)) == [Acquired(10, 19, 1)]

    def test_the_last_batch_is_acquired_whole(self) -> None:
        """SharePartition.acquireNewBatchRecords, batch_optimized: the bounds of record batches are kept."""
        share = Share()
        assert share.fetch("a", (0, 9), (10, 19), (20, 29), most=12) == [Acquired(0, 19, 1)]

    def test_batches_of_the_wanted_size(self) -> None:
        """SharePartition.createBatches: a batch begins where a record batch does, once the size is reached."""
        share = Share()
        assert share.fetch("a", (0, 3), (4, 7), (8, 11), (12, 15), batch_size=6) == [
            Acquired(0, 7, 1),
            Acquired(8, 15, 1),
        ]

    def test_never_more_than_the_limit_of_records(self) -> None:
        """KIP-1206, record_limit: the rest of the record batch stays available, and was not delivered."""
        share = Share()
        assert share.fetch("a", (0, 9), most=4, mode=LIMITED) == [Acquired(0, 3, 1)]
        assert share.offsets == (0, 9, 4)
        assert share.fetch("b", (0, 9), most=4, mode=LIMITED) == [Acquired(4, 7, 1)]
        assert share.fetch("a", (0, 9), (10, 19), most=4, mode=LIMITED) == [Acquired(8, 9, 1), Acquired(10, 11, 1)]

    @pytest.mark.parametrize("most", [0, -1])
    def test_nothing_wanted_or_nothing_read(self, most: int) -> None:
        """SharePartition.acquire: maxFetchRecords <= 0, no batch, or only batches before the start offset."""
        share = Share(start=5)
        assert share.fetch("a", (5, 9), most=most) == []
        assert share.fetch("a") == []
        assert share.fetch("a", (0, 4)) == []
        assert share.offsets == (5, 5, 5)

    def test_a_batch_that_begins_before_the_start_offset(self) -> None:
        """SharePartition.acquire: what lies before the start offset is not acquired."""
        share = Share(start=5)
        assert share.fetch("a", (0, 9)) == [Acquired(5, 9, 1)]


class TestLimitInFlight:
    def test_it_bounds_what_is_in_flight(self) -> None:
        """group.share.partition.max.record.locks, SharePartition.canAcquireRecords."""
        share = Share(Limits(max_in_flight=10))
        share.fetch("a", (0, 9))
        assert not share.it.can_acquire()
        assert share.fetch("b", (10, 19)) == []
        share.ack("a", 0, 4, ACCEPT)
        assert share.it.can_acquire()

    def test_a_full_window_still_gives_what_was_released(self) -> None:
        """SharePartition.lastOffsetAndMaxRecordsToAcquire: up to the end offset, and nothing new."""
        share = Share(Limits(max_in_flight=10))
        share.fetch("a", (0, 4), (5, 9))
        share.ack("a", 5, 9, RELEASE)
        assert share.it.can_acquire()
        assert share.fetch("b", (5, 9), (10, 19)) == [Acquired(5, 9, 2)]

    def test_a_full_window_of_what_the_log_no_longer_has(self) -> None:
        """Ours alone: SharePartition.acquire throws here (an inconsistent range), and has no room from then on."""
        share = Share(Limits(max_in_flight=10))
        share.fetch("a", (0, 9))
        share.ack("a", 0, 9, RELEASE)
        assert share.fetch("b", (20, 29)) == []
        assert share.it.can_acquire()
        assert share.fetch("b", (20, 29)) == [Acquired(20, 29, 1)]


class TestRecordsThatMembersFailOn:
    def test_the_count_rises_when_a_record_is_acquired(self) -> None:
        """KIP-932, Delivery count: it is incremented by the acquisition, never by the release."""
        share = Share()
        share.fetch("a", (0, 0))
        assert share.ack("a", 0, 0, RELEASE) == [StateBatch(0, 0, DeliveryState.AVAILABLE, 1)]
        assert share.fetch("a", (0, 0)) == [Acquired(0, 0, 2)]

    def test_fewer_at_a_time_the_more_often_they_were_delivered(self) -> None:
        """SharePartition.acquireSubsetBatchRecords (KAFKA-19841): 8 records, half of them, a quarter, then alone."""
        share = Share(Limits(delivery_count_limit=6))
        share.fetch("a", (0, 7))
        share.store(share.it.release("a"))
        sizes: list[tuple[int, int]] = []
        while len(sizes) < 6:
            acquired = share.fetch("a", (0, 7))
            sizes.append((sum(last - first + 1 for first, last, _ in acquired), acquired[0].delivery_count))
            share.store(share.it.release("a"))
        assert sizes[:5] == [(8, 2), (8, 3), (4, 4), (2, 5), (1, 6)]

    def test_a_record_at_the_head_does_not_stop_what_is_behind_it(self) -> None:
        """KIP-932: a record that was delivered too often is archived, and the start offset passes it."""
        share = Share(Limits(delivery_count_limit=2))
        share.fetch("a", (0, 0), (1, 4))
        share.ack("a", 1, 4, ACCEPT)
        share.ack("a", 0, 0, RELEASE)
        assert share.offsets[0] == 0
        assert share.fetch("a", (0, 0)) == [Acquired(0, 0, 2)]
        assert share.ack("a", 0, 0, RELEASE) == [StateBatch(0, 0, DeliveryState.ARCHIVED, 2)]
        assert share.offsets == (5, 5, 5)

    def test_the_last_delivery_of_a_record_comes_alone(self) -> None:
        """SharePartition.acquireSubsetBatchRecords: deliveryCount == maxDeliveryCount - 1."""
        share = Share(Limits(delivery_count_limit=3))
        for _ in range(2):
            share.fetch("a", (0, 2), most=500)
            share.store(share.it.release("a"))
        assert share.fetch("a", (0, 2)) == [Acquired(0, 0, 3)]
        assert share.fetch("b", (0, 2)) == [Acquired(1, 1, 3)]

    def test_a_throttled_batch_waits_for_a_fetch_of_its_own(self) -> None:
        """SharePartition.shouldThrottleRecordsDelivery: records already acquired end the fetch before it."""
        share = Share(Limits(delivery_count_limit=4))
        share.fetch("a", (0, 3))
        share.fetch("b", (4, 7))
        share.ack("b", 4, 7, RELEASE)
        share.fetch("b", (4, 7))
        share.ack("b", 4, 7, RELEASE)
        share.ack("a", 0, 3, RELEASE)
        assert share.fetch("a", (0, 3), (4, 7)) == [Acquired(0, 3, 2)]


class TestWhatIsNeverDelivered:
    def test_records_of_aborted_transactions(self) -> None:
        """SharePartition.filterAbortedTransactionalAcquiredRecords: archived, and not among what is acquired."""
        share = Share()
        assert share.fetch("a", (0, 4), (5, 9), (10, 10), aborted=[(5, 9)]) == [Acquired(0, 4, 1), Acquired(10, 10, 1)]
        assert share.it.delivery_complete_count == 5
        share.ack("a", 0, 4, ACCEPT)
        assert share.offsets[0] == 10

    def test_a_marker_is_acquired_and_acknowledged_as_a_gap(self) -> None:
        """SharePartition.fetchAbortedTransactionRecordBatches leaves markers; ShareConsumer says GAP of them."""
        share = Share()
        share.fetch("a", (0, 0), (1, 1), aborted=[(0, 0)])
        assert share.ack("a", 1, 1, 0) == [StateBatch(1, 1, DeliveryState.ARCHIVED, 1)]
        assert share.offsets == (2, 2, 2)

    def test_an_aborted_batch_that_begins_before_the_start_offset(self) -> None:
        """Ours alone: SharePartition.fetchSubMap throws here, with the records locked."""
        share = Share(start=3)
        assert share.fetch("a", (0, 4), (5, 9), aborted=[(0, 4)]) == [Acquired(5, 9, 1)]
        assert share.it.delivery_complete_count == 2

    def test_what_compaction_removed_is_archived(self) -> None:
        """SharePartition.maybeArchiveStaleBatches: available records that the log no longer has."""
        share = Share()
        share.fetch("a", (0, 4), (5, 9))
        share.ack("a", 0, 9, RELEASE)
        assert share.fetch("b", (7, 9)) == [Acquired(7, 9, 2)]
        assert share.it.delivery_complete_count == 7
        share.ack("b", 7, 9, ACCEPT)
        assert share.offsets == (10, 10, 10)
