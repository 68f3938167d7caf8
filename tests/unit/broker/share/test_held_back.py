"""Records that members release with a delay are held back: available, but for no member before a time (ours)."""

from collections.abc import Sequence

import pytest

from fencepost.broker.share.change import Change
from fencepost.broker.share.led import by_lock_clock
from fencepost.broker.share.values import DELAY_MS_MAX, AckBatch, AckType, Acquired, AcquireMode, Limits
from fencepost.broker.share.window import WINDOW_MAX
from fencepost.coordinator.share.values import NOT_HELD, DeliveryState, StateBatch
from tests.kit.share_partition import DEFAULT, Share

_, ACCEPT, RELEASE, _, RENEW = AckType
AVAILABLE, ACQUIRED, ACKNOWLEDGED, _, ARCHIVED, _ = DeliveryState
HOUR_MS = 3_600_000


def releasing(share: Share, first: int, last: int, delay_ms: int, *types: int, member: str = "a") -> Change:
    return share.it.acknowledge(member, [AckBatch(first, last, types or [RELEASE], delay_ms)], share.now)


def holding(limits: Limits = DEFAULT, *batches: tuple[int, int]) -> Share:
    """A share partition of which member a holds 0 to 9, or other batches."""
    share = Share(limits)
    share.fetch("a", *(batches or [(0, 9)]))
    return share


def held(limits: Limits = DEFAULT, *, delay_ms: int = HOUR_MS) -> Share:
    """A share partition of which 0 to 9 are held back."""
    share = holding(limits)
    share.store(releasing(share, 0, 9, delay_ms))
    return share


class TestRelease:
    def test_no_member_gets_it_before_its_time(self) -> None:
        """H1, ours: the delivery count is that of any release, and the end of the time is no delivery."""
        share = held()
        assert share.offsets == (0, 9, 10)
        assert share.fetch("b", (0, 9), (10, 19)) == [Acquired(10, 19, 1)]
        assert share.it.next_expiry() == DEFAULT.lock_ms
        assert share.wait(HOUR_MS - 1) == [StateBatch(10, 19, AVAILABLE, 1)]
        assert share.fetch("b", (0, 9), (10, 19)) == [Acquired(10, 19, 2)]
        share.wait(1)
        assert share.fetch("b", (0, 9)) == [Acquired(0, 9, 2)]

    def test_it_waits_in_no_ones_hand(self) -> None:
        """H2, ours: the member that released it neither acknowledges nor renews it, and may leave."""
        share = held()
        for kind in (ACCEPT, RENEW):
            assert share.refusal("a", 0, 9, kind) == "The batch is not acquired by the member."
        assert not share.it.release("a")
        assert share.fetch("b", (0, 9)) == []

    def test_what_is_stored_is_the_time(self) -> None:
        """H3, ours: by the wall clock, rounded up to 0.1 s so that neighbours are stored as one."""
        share = holding()
        share.now = 250
        change = releasing(share, 0, 1, 1_000)
        assert change.update(3, wall_ahead_ms=5_000_000).batches == [StateBatch(0, 1, AVAILABLE, 1, 5_001_300)]
        share.now = 260
        later = share.it.acknowledge("a", [AckBatch(2, 2, [RELEASE], 1_000), AckBatch(3, 3, [RELEASE], 1_030)], 260)
        assert later.batches == [StateBatch(2, 3, AVAILABLE, 1, 1_300)]

    def test_only_releases_wait(self) -> None:
        """H1: a delay says nothing of what is accepted in the same batch."""
        share = holding()
        assert share.store(releasing(share, 0, 2, 500, ACCEPT, RELEASE, ACCEPT)) == [
            StateBatch(0, 0, ACKNOWLEDGED, 1),
            StateBatch(1, 1, AVAILABLE, 1, 500),
            StateBatch(2, 2, ACKNOWLEDGED, 1),
        ]

    def test_after_the_last_delivery_it_is_archived_at_once(self) -> None:
        """H1 with InFlightState.tryUpdateState: nothing waits for a delivery that does not come."""
        share = holding(Limits(delivery_count_limit=1))
        assert share.store(releasing(share, 0, 9, HOUR_MS)) == [StateBatch(0, 9, ARCHIVED, 1)]
        assert share.offsets == (10, 10, 10)

    def test_each_record_has_its_own_time(self) -> None:
        """H1: the next expiry is that of the first, and each ends alone."""
        share = holding()
        for offset in (3, 5):
            share.store(releasing(share, offset, offset, offset * 1000))
        share.ack("a", 0, 2, ACCEPT)
        assert share.it.next_expiry() == 3_000
        share.wait(3_000)
        assert share.fetch("b", (0, 9)) == [Acquired(3, 3, 2)]
        share.wait(2_000)
        assert share.fetch("b", (0, 9)) == [Acquired(5, 5, 2)]

    def test_the_rest_of_a_record_batch_comes_at_its_time(self) -> None:
        """H1 with KIP-1206: a member that wants fewer leaves the others available."""
        share = held(delay_ms=1_000)
        share.wait(1_000)
        assert share.fetch("b", (0, 9), most=4, mode=AcquireMode.RECORD_LIMIT) == [Acquired(0, 3, 2)]
        assert share.fetch("b", (0, 9), most=9, mode=AcquireMode.RECORD_LIMIT) == [Acquired(4, 9, 2)]


class TestStoring:
    def test_until_it_is_stored_the_member_holds_it(self) -> None:
        """H2 with InFlightState.completeStateTransition: what is not stored is rolled back, delay and all."""
        share = holding()
        releasing(share, 0, 9, HOUR_MS).settle(False)
        assert share.fetch("b", (0, 9)) == []
        assert share.ack("a", 0, 9, ACCEPT) == [StateBatch(0, 9, ACKNOWLEDGED, 1)]

    def test_a_lock_that_ends_meanwhile(self) -> None:
        """H1: the time counts if it is stored, and the end of the lock if not."""
        stored, lost = holding(), holding()
        for share, is_stored in ((stored, True), (lost, False)):
            change = releasing(share, 0, 9, HOUR_MS)
            share.wait(DEFAULT.lock_ms)
            change.settle(is_stored)
        assert stored.fetch("b", (0, 9)) == []
        assert lost.fetch("b", (0, 9)) == [Acquired(0, 9, 2)]

    def test_the_log_start_cuts_it_meanwhile(self) -> None:
        """H5: what is left is held back, though the transition was that of the whole batch."""
        share = holding()
        change = releasing(share, 0, 9, HOUR_MS)
        share.it.log_start_moved(5)
        share.store(change)
        assert share.fetch("b", (5, 9)) == []
        share.wait(HOUR_MS)
        assert share.fetch("b", (5, 9)) == [Acquired(5, 9, 2)]

    @pytest.mark.parametrize("state", [AVAILABLE, ACKNOWLEDGED])
    def test_a_leader_begins_with_it(self, state: DeliveryState) -> None:
        """H3: a restart or another leader changes nothing. A time counts for available records only."""
        share = Share(stored=[StateBatch(0, 4, state, 2, HOUR_MS), StateBatch(5, 9, AVAILABLE, 1)])
        assert share.fetch("a", (0, 4), (5, 9)) == [Acquired(5, 9, 2)]
        share.wait(HOUR_MS)
        assert share.fetch("b", (0, 4)) == ([Acquired(0, 4, 3)] if state is AVAILABLE else [])

    def test_a_wall_clock_that_jumps(self) -> None:
        """H4, ours: by the clock of the locks nothing jumps while a leader lives; the next one goes by the wall clock.

        So what was stored before a clock went back waits longer, but not longer than the longest delay.
        """
        stored = StateBatch(0, 9, AVAILABLE, 1, 1_000_000)
        assert by_lock_clock(stored, 940_000, 70).held_until_ms == 60_070
        assert by_lock_clock(stored, 1_000_000, 70).held_until_ms == NOT_HELD
        assert by_lock_clock(stored, 2_000_000, 70).held_until_ms == NOT_HELD
        assert by_lock_clock(stored, 1_000_000 - 2 * DELAY_MS_MAX, 70).held_until_ms == 70 + DELAY_MS_MAX
        assert by_lock_clock(StateBatch(0, 9, AVAILABLE, 1), 5, 70).held_until_ms == NOT_HELD


class TestWhatPasses:
    def test_the_log_start(self) -> None:
        """H5: retention and DeleteRecords archive what is held back; the rest waits."""
        share = held()
        share.it.log_start_moved(6)
        assert share.offsets == (6, 9, 10)
        share.it.log_start_moved(20)
        share.store(share.it.expire(share.now))
        assert share.fetch("b", (20, 29)) == [Acquired(20, 29, 1)]
        assert share.wait(HOUR_MS) == [StateBatch(20, 29, AVAILABLE, 1)]
        assert share.it.start_offset == 20

    def test_compaction(self) -> None:
        """H5, SharePartition.maybeArchiveStaleBatches: what the log has no more at its time is archived."""
        share = held()
        share.wait(HOUR_MS)
        assert share.fetch("b", (5, 9)) == [Acquired(5, 9, 2)]
        share.ack("b", 5, 9, ACCEPT)
        assert share.offsets == (10, 10, 10)

    def test_a_transaction_that_aborts_gives_back_at_once(self) -> None:
        """H6: a delay is none of an acknowledgement in a transaction."""
        share = holding()
        share.store(share.it.acknowledge_in("a", [AckBatch(0, 9, [ACCEPT])], 7))
        share.store(share.it.resolve(7, commit=False))
        assert share.fetch("b", (0, 9)) == [Acquired(0, 9, 2)]

    def test_what_is_shown(self) -> None:
        """H8: available, and for how long no member gets it."""
        share = held()
        share.now += 1_000
        assert list(share.it.ranges(share.now)) == [(0, 9, AVAILABLE, 1, "", HOUR_MS - 1_000, -1)]


class TestLimits:
    def test_what_is_behind_it_goes_on(self) -> None:
        """H7, ours: the window is as long as it must be, and each record held back counts as one in flight."""
        share = holding(Limits(max_in_flight=10), (0, 0), (1, 9))
        share.store(releasing(share, 0, 0, HOUR_MS))
        for begin in range(10, 1000, 9):
            share.ack("a", begin - 9, begin - 1, ACCEPT)
            assert share.fetch("a", (begin, begin + 8)) == [Acquired(begin, begin + 8, 1)]
            assert not share.it.can_acquire()
        assert share.it.start_offset == 0
        share.wait(HOUR_MS)
        assert share.fetch("b", (0, 0)) == [Acquired(0, 0, 2)]

    def test_they_count_while_all_fails(self) -> None:
        """H7: members that release all with a delay do not run through the topic."""
        share = held(Limits(max_in_flight=15))
        assert share.fetch("b", (10, 14), (15, 29)) == [Acquired(10, 14, 1)]
        share.store(releasing(share, 10, 14, HOUR_MS, member="b"))
        assert not share.it.can_acquire()
        share.wait(HOUR_MS)
        assert share.it.can_acquire()

    def test_the_window_ends_somewhere(self) -> None:
        """H7: so that the stored state keeps its bound, whatever becomes of the records behind."""
        share = holding(Limits(max_in_flight=10_000), (0, 0), (1, 8000))
        share.store(releasing(share, 0, 0, HOUR_MS))
        share.ack("a", 1, 8000, ACCEPT)
        share.fetch("a", (8001, WINDOW_MAX - 1))
        share.ack("a", 8001, WINDOW_MAX - 1, ACCEPT)
        assert not share.it.can_acquire()
        assert share.fetch("a", (WINDOW_MAX, WINDOW_MAX + 9)) == []
        share.wait(HOUR_MS)
        share.fetch("a", (0, 0))
        share.ack("a", 0, 0, ACCEPT)
        assert share.fetch("a", (WINDOW_MAX, WINDOW_MAX + 9)) == [Acquired(WINDOW_MAX, WINDOW_MAX + 9, 1)]

    @pytest.mark.parametrize("spans", [[(2, 5)], [(0, 3), (6, 9)], [(1, 1), (3, 3), (5, 5)]])
    def test_what_counts_is_what_a_slow_count_says(self, spans: Sequence[tuple[int, int]]) -> None:
        """H7: from the first record on that is neither done nor held back, and those before it that were delivered."""
        share = holding(DEFAULT, (0, 4), (5, 9), (10, 14))
        window = share.it._window
        for first, last in spans:
            share.store(releasing(share, first, last, 1_000 * (first + 1)))
            assert window.counted == slow_count(share)
        for offset in (0, 2, 4, 7, 8, 12):
            if share.it._window.batches.floor(offset).at(offset).state is ACQUIRED:  # type: ignore[union-attr]
                share.ack("a", offset, offset, ACCEPT)
            assert window.counted == slow_count(share)
        for _ in range(12):
            share.wait(1_000)
            assert window.counted == slow_count(share)
            share.fetch("b", (0, 4), (5, 9), (10, 14), most=1, mode=AcquireMode.RECORD_LIMIT)
            assert window.counted == slow_count(share)


LATER = [(2, HOUR_MS), (3, HOUR_MS), (7, 2 * HOUR_MS)]


class TestScheduled:
    """Records that say themselves when they may come; `held` is what the shell read in their headers."""

    @pytest.mark.parametrize("batches", [[(0, 9)], [(offset, offset) for offset in range(10)]])
    def test_new_records_before_their_time(self, batches: Sequence[tuple[int, int]]) -> None:
        """H11: they are in flight without a delivery; nothing waits for them, and nothing is stored."""
        share = Share()
        got = [Acquired(0, 1, 1), Acquired(4, 6, 1), Acquired(8, 9, 1)]
        assert share.fetch("a", *batches, held=LATER) == got
        assert share.fetch("b", *batches, (10, 19), held=LATER) == [Acquired(10, 19, 1)]
        for first, last, _ in got:
            share.ack("a", first, last, ACCEPT)
        assert (share.offsets, share.it.delivery_complete_count) == ((2, 19, 20), 5)
        share.ack("b", 10, 19, ACCEPT)
        share.wait(HOUR_MS)
        assert share.fetch("a", *batches, held=LATER[2:]) == [Acquired(2, 3, 1)]
        share.ack("a", 2, 3, ACCEPT)
        share.wait(HOUR_MS)
        assert share.fetch("a", *batches) == [Acquired(7, 7, 1)]

    def test_as_many_others_as_wanted(self) -> None:
        """H11 with KIP-1206: what is held back takes no place among the records of a fetch."""
        share = Share()
        assert share.fetch("a", (0, 9), most=3, mode=AcquireMode.RECORD_LIMIT, held=LATER) == [
            Acquired(0, 1, 1),
            Acquired(4, 4, 1),
        ]
        assert share.fetch("b", (0, 9), most=9, mode=AcquireMode.RECORD_LIMIT) == [
            Acquired(5, 6, 1),
            Acquired(8, 9, 1),
        ]
        batchwise = Share()
        assert batchwise.fetch("a", (0, 3), (4, 7), (8, 9), most=3, held=LATER) == [
            Acquired(0, 1, 1),
            Acquired(4, 6, 1),
        ]

    def test_a_fetch_of_nothing_but_later_ones(self) -> None:
        """H11: it goes on behind them."""
        share = Share()
        assert share.fetch("a", (0, 9), most=3, held=[(offset, HOUR_MS) for offset in range(10)]) == []
        assert share.offsets == (0, 9, 10)

    def test_a_later_look_holds_back_what_was_never_delivered(self) -> None:
        """H11: those left available by an earlier fetch are looked at again, those that were delivered are not."""
        share = Share()
        assert share.fetch("a", (0, 9), most=3, mode=AcquireMode.RECORD_LIMIT) == [Acquired(0, 2, 1)]
        assert (share.it.has_new(0, 2), share.it.has_new(2, 3), share.it.has_new(10, 10)) == (False, True, True)
        share.ack("a", 0, 2, RELEASE)
        got = share.fetch("b", (0, 9), held=LATER)
        assert got == [Acquired(0, 2, 2), Acquired(4, 6, 1), Acquired(8, 9, 1)]
        assert not share.it.has_new(0, 9)
        share.wait(HOUR_MS)
        assert share.it.has_new(0, 9)

    def test_after_a_restart_the_log_says_it_again(self) -> None:
        """H11: the stored state has holes there (`GapWindow`), which are read again."""
        stored = [StateBatch(0, 1, ACKNOWLEDGED, 1), StateBatch(4, 6, ACKNOWLEDGED, 1), StateBatch(8, 9, AVAILABLE, 1)]
        share = Share(stored=stored)
        assert share.offsets == (2, 9, 2)
        assert share.fetch("a", (0, 9), (10, 19), held=LATER) == [Acquired(8, 9, 2), Acquired(10, 19, 1)]
        share.ack("a", 8, 19, ACCEPT)
        assert share.offsets == (2, 19, 20)
        share.wait(2 * HOUR_MS)
        assert share.fetch("a", (0, 9)) == [Acquired(2, 3, 1), Acquired(7, 7, 1)]
        share.ack("a", 2, 3, ACCEPT)
        share.ack("a", 7, 7, ACCEPT)
        assert share.offsets == (20, 20, 20)

    def test_records_of_an_aborted_transaction(self) -> None:
        """H12, read_committed: they are archived when their time has come."""
        share = Share()
        assert share.fetch("a", (0, 4), (5, 9), aborted=[(0, 4)], held=[(1, 1_000)]) == [Acquired(5, 9, 1)]
        share.ack("a", 5, 9, ACCEPT)
        share.wait(1_000)
        assert share.fetch("a", (0, 4), aborted=[(0, 4)]) == []
        assert share.store(share.it.expire(share.now)) == []
        share.fetch("b", (10, 10))
        assert share.ack("b", 10, 10, ACCEPT) == [StateBatch(10, 10, ACKNOWLEDGED, 1)]
        assert share.it.start_offset == 11

    def test_they_do_not_count_for_the_limit_in_flight(self) -> None:
        """H13: who schedules thousands for tomorrow stops nothing, wherever they are in the window."""
        share = Share(Limits(max_in_flight=10))
        tomorrow = [(offset, 24 * HOUR_MS) for offset in range(5, 5005)]
        batches = [(offset, offset) for offset in range(5015)]
        assert share.fetch("a", *batches, held=tomorrow) == [Acquired(0, 4, 1), Acquired(5005, 5009, 1)]
        assert (share.it._window.counted, share.it.can_acquire()) == (10, False)
        share.ack("a", 0, 4, ACCEPT)
        assert (share.it._window.counted, share.it.can_acquire()) == (5, True)
        assert share.fetch("a", (5010, 5014)) == [Acquired(5010, 5014, 1)]
        share.ack("a", 5005, 5014, ACCEPT)
        share.it.log_start_moved(5000)
        assert (share.it._window.scheduled, share.it._window.counted) == (5, 0)
        share.wait(24 * HOUR_MS)
        assert (share.it._window.scheduled, share.it._window.counted) == (0, 15)
        assert share.fetch("a", *batches[5000:5005]) == [Acquired(5000, 5004, 1)]

    def test_the_window_ends_somewhere(self) -> None:
        """H13: 16,000 offsets, as with delays."""
        share = Share()
        batches = [(offset, offset) for offset in range(20_000)]
        share.fetch("a", *batches, held=[(offset, HOUR_MS) for offset in range(20_000)])
        assert WINDOW_MAX <= share.it.in_flight <= WINDOW_MAX + DEFAULT.max_in_flight
        assert not share.it.can_acquire()


def slow_count(share: Share) -> int:
    window = share.it._window
    delayed = 0
    for batch in window.batches:
        for offset in range(max(batch.first, window.start), batch.last + 1):
            state = batch.at(offset)
            if not (state.done or state.held_back):
                return window.end - offset + 1 + delayed
            delayed += state.held_back and state.deliveries > 0
    return delayed
