"""What members say of records, and what becomes of records of which they say nothing (KIP-932)."""

import pytest

from fencepost.broker.share.values import AckBatch, AckType, Acquired, DeadCause, DeadLetters, Limits, Refused
from fencepost.coordinator.share.values import DeliveryState, StateBatch, StateUpdate
from fencepost.protocol.errors import ErrorCode
from tests.kit.share_partition import DEFAULT, Share

GAP, ACCEPT, RELEASE, REJECT, RENEW = AckType
AVAILABLE, _, ACKNOWLEDGED, ARCHIVING, ARCHIVED, _ = DeliveryState


def refused(share: Share, member: str, first: int, last: int, *types: int) -> ErrorCode:
    with pytest.raises(Refused) as caught:
        share.say(member, first, last, *types)
    return caught.value.error


def holding(limits: Limits = DEFAULT, *more: tuple[int, int]) -> Share:
    """A share partition of which member a holds 0 to 9, and more."""
    share = Share(limits)
    share.fetch("a", (0, 9))
    for batch in more:
        share.fetch("a", batch)
    return share


class TestWhatIsSaid:
    @pytest.mark.parametrize(
        ("kind", "state", "offsets"),
        [
            (ACCEPT, ACKNOWLEDGED, (10, 10, 10)),
            (REJECT, ARCHIVED, (10, 10, 10)),
            (GAP, ARCHIVED, (10, 10, 10)),
            (RELEASE, AVAILABLE, (0, 9, 0)),
        ],
    )
    def test_each_kind(self, kind: int, state: DeliveryState, offsets: tuple[int, int, int]) -> None:
        """KIP-932 and SharePartition.ACK_TYPE_TO_RECORD_STATE."""
        share = holding()
        assert share.ack("a", 0, 9, kind) == [StateBatch(0, 9, state, 1)]
        assert share.offsets == offsets

    def test_a_kind_for_each_offset(self) -> None:
        """SharePartition.acknowledgePerOffsetBatchRecords: neighbours alike are stored as one."""
        share = holding()
        assert share.ack("a", 0, 4, ACCEPT, ACCEPT, RELEASE, GAP, REJECT) == [
            StateBatch(0, 1, ACKNOWLEDGED, 1),
            StateBatch(2, 2, AVAILABLE, 1),
            StateBatch(3, 4, ARCHIVED, 1),
        ]
        assert share.offsets == (2, 9, 2)
        assert share.it.delivery_complete_count == 2

    def test_the_start_moves_only_over_what_is_done_without_gaps(self) -> None:
        """SharePartition.findLastOffsetAcknowledgedAndMetadata."""
        share = holding(DEFAULT, (10, 19))
        share.ack("a", 5, 14, ACCEPT)
        assert share.offsets == (0, 19, 20)
        assert share.it.delivery_complete_count == 10
        share.ack("a", 0, 3, ACCEPT)
        assert share.offsets[0] == 4
        share.ack("a", 4, 4, REJECT)
        assert share.offsets[0] == 15
        assert share.it.delivery_complete_count == 0

    def test_what_a_request_says_of_several_batches(self) -> None:
        """SharePartition.acknowledge: an AcknowledgementBatch may span batches in flight, and a request have many."""
        share = holding(DEFAULT, (10, 19))
        change = share.it.acknowledge("a", [AckBatch(0, 1, [RELEASE]), AckBatch(5, 12, [ACCEPT])], 0)
        assert change.update(leader_epoch=3) == StateUpdate(
            7, 3, 0, 8, [StateBatch(0, 1, AVAILABLE, 1), StateBatch(5, 12, ACKNOWLEDGED, 1)]
        )


class TestBehindTheStart:
    """What lies before the start offset is done; an answer NONE to it must outlive the leader.

    SharePartition.acknowledge skips it and answers at once. Ours waits until the start is stored.
    """

    def test_nothing_is_stored_where_the_start_is(self) -> None:
        share = holding()
        share.ack("a", 0, 4, ACCEPT)
        share.ack("a", 5, 6, ACCEPT)
        assert not share.say("a", 0, 4, ACCEPT)

    def test_the_start_is_stored_where_locks_ended_that_could_not_be(self) -> None:
        """SharePartition.releaseAcquisitionLockOnTimeout archives at the limit, whether that is stored or not."""
        share = holding(Limits(delivery_count_limit=1))
        share.now += share.limits.lock_ms
        share.it.expire(share.now).settle(False)
        assert share.it.start_offset == 10
        change = share.say("a", 0, 9, ACCEPT)
        assert change.update(leader_epoch=3) == StateUpdate(7, 3, 10, 0, [])
        assert change, "the answer waits for it"
        change.settle(False)
        change = share.say("a", 0, 9, ACCEPT)
        assert change, "and again, as long as it is not stored"
        change.settle(True)
        assert not share.say("a", 0, 9, ACCEPT)

    def test_the_start_is_stored_where_the_log_begins_later(self) -> None:
        """SharePartition.updateCacheAndOffsets: the log's start need not be durable yet."""
        share = holding()
        share.it.log_start_moved(5)
        assert share.say("a", 4, 4, ACCEPT).update(leader_epoch=3) == StateUpdate(7, 3, 5, 0, [])

    def test_what_was_stored_before_the_start_moved_stores_no_later_start(self) -> None:
        share = holding()
        accepted = share.say("a", 5, 9, ACCEPT)
        share.it.log_start_moved(5)
        share.store(accepted)
        assert share.say("a", 0, 4, ACCEPT).update(leader_epoch=3) == StateUpdate(7, 3, 5, 5, [])


class TestRefused:
    def test_what_another_member_holds(self) -> None:
        """SharePartition.validateAcknowledgementBatchMemberId: for a batch, and for an offset of it."""
        share = holding()
        assert refused(share, "b", 0, 9, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
        share.ack("a", 0, 0, ACCEPT)
        assert refused(share, "b", 1, 1, ACCEPT) == ErrorCode.INVALID_RECORD_STATE

    @pytest.mark.parametrize("kind", [ACCEPT, RELEASE, REJECT, RENEW, GAP])
    def test_after_the_lock_ended(self, kind: int) -> None:
        """KIP-932: INVALID_RECORD_STATE once the record is no longer acquired, also if another member holds it."""
        share = holding()
        share.wait(30_000)
        assert refused(share, "a", 0, 9, kind) == ErrorCode.INVALID_RECORD_STATE
        assert refused(share, "", 0, 9, kind) == ErrorCode.INVALID_RECORD_STATE
        assert share.fetch("b", (0, 9)) == [Acquired(0, 9, 2)]
        assert refused(share, "a", 0, 9, kind) == ErrorCode.INVALID_RECORD_STATE

    @pytest.mark.parametrize(("first", "last"), [(0, 10), (10, 10), (12, 2**62)])
    def test_what_was_never_acquired(self, first: int, last: int) -> None:
        """SharePartition.fetchSubMapForAcknowledgementBatch: INVALID_REQUEST past what is in flight."""
        assert refused(holding(), "a", first, last, ACCEPT) == ErrorCode.INVALID_REQUEST

    def test_what_is_not_in_flight(self) -> None:
        """The same: INVALID_RECORD_STATE before what is in flight; nothing at all below the start offset."""
        share = Share(start=5)
        assert refused(share, "a", 5, 6, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
        assert refused(share, "a", 3, 6, ACCEPT) == ErrorCode.INVALID_RECORD_STATE  # Kafka: a NullPointerException
        assert not share.say("a", 0, 4, ACCEPT)

    @pytest.mark.parametrize("types", [(5,), (-1,), (), (ACCEPT, ACCEPT)])
    def test_kinds_that_do_not_exist_or_do_not_fit(self, types: tuple[int, ...]) -> None:
        """SharePartition.fetchAckTypeMapForBatch, KafkaApis.validateAcknowledgementBatches."""
        assert refused(holding(), "a", 0, 9, *types) == ErrorCode.INVALID_REQUEST

    def test_twice(self) -> None:
        """A misbehaving client repeats what is being stored, or is stored already."""
        share = holding()
        change = share.say("a", 0, 4, ACCEPT)
        assert refused(share, "a", 0, 4, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
        share.store(share.say("a", 9, 9, ACCEPT))
        share.store(change)
        assert refused(share, "a", 9, 9, ACCEPT) == ErrorCode.INVALID_RECORD_STATE

    def test_a_refusal_undoes_what_came_before_it(self) -> None:
        """SharePartition.rollbackOrProcessStateUpdates with a throwable: all of the request or nothing."""
        share = holding()
        with pytest.raises(Refused):
            share.it.acknowledge("a", [AckBatch(0, 4, [ACCEPT]), AckBatch(5, 20, [ACCEPT])], 0)
        assert share.it.delivery_complete_count == 0
        assert share.ack("a", 0, 9, ACCEPT) == [StateBatch(0, 9, ACKNOWLEDGED, 1)]


class TestStored:
    def test_nothing_counts_before_it_is_stored(self) -> None:
        """InFlightState.hasOngoingStateTransition: neither is the start moved, nor is a released record acquired."""
        share = holding()
        accepted, released = share.say("a", 0, 4, ACCEPT), share.say("a", 5, 9, RELEASE)
        assert share.offsets == (0, 9, 10)
        assert share.fetch("b", (5, 9)) == []
        share.store(released)
        assert share.offsets == (0, 9, 5)
        share.store(accepted)
        assert share.offsets == (5, 9, 5)

    def test_what_is_not_stored_is_rolled_back(self) -> None:
        """InFlightState.completeStateTransition(false): the member holds the records again."""
        share = holding()
        assert share.say("a", 0, 9, ACCEPT).settle(False) == ()
        assert share.it.delivery_complete_count == 0
        assert share.offsets == (0, 9, 10)
        assert share.ack("a", 0, 9, ACCEPT) == [StateBatch(0, 9, ACKNOWLEDGED, 1)]

    @pytest.mark.parametrize("limit", [5, 1])
    def test_a_lock_that_ended_meanwhile(self, limit: int) -> None:
        """InFlightState.completeStateTransition(false), hasExpired: available, or archived after the last delivery."""
        share = holding(Limits(delivery_count_limit=limit))
        change = share.say("a", 0, 9, ACCEPT)
        assert share.wait(30_000) == []
        change.settle(False)
        assert refused(share, "a", 0, 9, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
        assert share.fetch("b", (0, 9)) == ([Acquired(0, 9, 2)] if limit > 1 else [])


class TestLocks:
    def test_a_lock_that_ends_counts_as_a_release(self) -> None:
        """SharePartition.releaseAcquisitionLockOnTimeout; group.share.record.lock.duration.ms."""
        share = holding()
        assert share.it.next_expiry() == 30_000
        assert share.wait(29_999) == []
        assert share.wait(1) == [StateBatch(0, 9, AVAILABLE, 1)]
        assert share.it.next_expiry() is None
        assert share.offsets == (0, 9, 0)

    def test_it_ends_even_if_that_cannot_be_stored(self) -> None:
        """SharePartition.releaseAcquisitionLockOnTimeout: the error of the write is only logged."""
        share = holding()
        share.it.expire(30_000).settle(False)
        assert share.fetch("b", (0, 9)) == [Acquired(0, 9, 2)]

    def test_after_the_last_delivery_it_archives(self) -> None:
        """InFlightState.tryUpdateState: deliveryCount >= maxDeliveryCount; group.share.delivery.count.limit."""
        share = holding(Limits(delivery_count_limit=1))
        assert share.wait(30_000) == [StateBatch(0, 9, ARCHIVED, 1)]
        assert share.offsets == (10, 10, 10)

    def test_each_offset_keeps_the_lock_of_its_batch(self) -> None:
        """InFlightBatch.maybeInitializeOffsetStateUpdate: a batch that is split does not lock longer."""
        share = holding()
        share.wait(10_000)
        share.ack("a", 3, 3, ACCEPT)
        assert share.wait(20_000) == [StateBatch(0, 2, AVAILABLE, 1), StateBatch(4, 9, AVAILABLE, 1)]

    def test_a_member_renews(self) -> None:
        """KIP-1222: RENEW begins the lock again, for a batch or for some of its offsets; nothing is stored."""
        share = holding()
        share.wait(20_000)
        assert not share.say("a", 0, 9, RENEW)
        share.wait(20_000)
        assert not share.say("a", 0, 4, RENEW)
        assert share.wait(10_000) == [StateBatch(5, 9, AVAILABLE, 1)]
        assert share.wait(20_000) == [StateBatch(0, 4, AVAILABLE, 1)]

    def test_a_group_may_forbid_it(self) -> None:
        """KIP-1222, share.renew.acknowledge.enable: INVALID_RECORD_STATE."""
        share = holding(Limits(renew=False))
        assert refused(share, "a", 0, 9, RENEW) == ErrorCode.INVALID_RECORD_STATE
        assert refused(share, "a", 0, 4, RENEW) == ErrorCode.INVALID_RECORD_STATE

    def test_the_settings_of_the_moment_count(self) -> None:
        """ShareGroupConfigProvider is asked at each decision: a lock that began before keeps its length."""
        share = holding()
        share.limits = Limits(lock_ms=1000)
        share.fetch("a", (10, 19))
        assert share.it.next_expiry() == 1000
        assert share.wait(1000) == [StateBatch(10, 19, AVAILABLE, 1)]
        assert share.it.next_expiry() == 30_000


class TestMemberLeaves:
    def test_what_it_holds_is_available_again(self) -> None:
        """SharePartition.releaseAcquiredRecords: whole batches and single offsets, no other member's."""
        share = holding()
        share.fetch("b", (10, 19))
        share.ack("a", 2, 2, ACCEPT)
        assert share.store(share.it.release("a")) == [StateBatch(0, 1, AVAILABLE, 1), StateBatch(3, 9, AVAILABLE, 1)]
        assert share.fetch("c", (0, 9), (10, 19)) == [Acquired(0, 1, 2), Acquired(3, 9, 2)]
        assert not share.it.release("a")

    def test_after_the_last_delivery_it_is_archived(self) -> None:
        """InFlightState.tryUpdateState: DeliveryCountOps.NO_OP does not spare the limit."""
        share = holding(Limits(delivery_count_limit=1))
        assert share.store(share.it.release("a")) == [StateBatch(0, 9, ARCHIVED, 1)]


class TestDeadLetters:
    LIMITS = Limits(dead_letters=True, delivery_count_limit=1)

    def test_what_a_member_rejects(self) -> None:
        """KIP-1191: ARCHIVING until it is in the dead-letter topic, and it is written once that is stored."""
        share = holding(Limits(dead_letters=True))
        change = share.say("a", 0, 9, REJECT)
        assert change.batches == [StateBatch(0, 9, ARCHIVING, 1)]
        (dead,) = change.settle(True)
        assert dead == DeadLetters(0, 9, 1, DeadCause.REJECTED)
        assert share.offsets == (0, 9, 10)
        assert share.store(share.it.archive(dead)) == [StateBatch(0, 9, ARCHIVED, 1)]
        assert share.offsets == (10, 10, 10)

    def test_what_was_delivered_too_often(self) -> None:
        """ShareGroupDLQManager.DELIVERY_COUNT_EXCEEDED: after a release, a lock that ended, a member that left."""
        share = holding(self.LIMITS, (10, 10), (11, 11))
        share.ack("a", 0, 9, RELEASE)
        share.ack("a", 10, 10, ACCEPT)
        share.store(share.it.release("a"))
        share.fetch("a", (12, 13))
        share.wait(30_000)
        limit = DeadCause.LIMIT
        assert share.dead == [DeadLetters(0, 9, 1, limit), DeadLetters(11, 11, 1, limit), DeadLetters(12, 13, 1, limit)]

    def test_nothing_is_written_of_what_was_not_stored(self) -> None:
        """SharePartition.rollbackOrProcessStateUpdates: dlqBatches only after the write."""
        share = holding(self.LIMITS)
        assert share.say("a", 0, 4, REJECT).settle(False) == ()
        assert share.say("a", 0, 4, ACCEPT).batches == [StateBatch(0, 4, ACKNOWLEDGED, 1)]

    def test_single_offsets_next_to_each_other_are_one(self) -> None:
        """Ours: Kafka writes each offset of a split batch by itself."""
        share = holding(Limits(dead_letters=True))
        share.ack("a", 1, 3, REJECT, REJECT, REJECT)
        assert share.dead == [DeadLetters(1, 3, 1, DeadCause.REJECTED)]
        share.store(share.it.archive(share.dead[0]))
        assert share.it.delivery_complete_count == 3
