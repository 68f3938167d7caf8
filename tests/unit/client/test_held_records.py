"""Locks and acknowledgements of acquired records: what is sent when, and what is lost (KIP-932, KIP-1222)."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fencepost.client.core.acknowledgements import AcknowledgeType
from fencepost.client.core.acquired_records import AcquiredRange
from fencepost.client.core.held_records import LOCK_ENDED, HeldRecord, HeldRecords, Sent
from fencepost.protocol.errors import ErrorCode

ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW
NONE = ErrorCode.NONE
P = (b"t" * 16, 0)
LOCK_S = 30.0


def acquire(held: HeldRecords, count: int = 1, now: float = 0.0) -> list[HeldRecord]:
    return list(held.acquired(P, [AcquiredRange(0, count - 1, 1)], now, LOCK_S).values())


def sent_by(held: HeldRecords) -> list[tuple[int, AcknowledgeType]]:
    return [(one.record.offset, one.kind) for one in held.take([P]).get(P, [])]


def test_a_decision_is_sent_once_and_frees_its_room_at_once() -> None:
    held = HeldRecords()
    first, _ = acquire(held, 2)
    assert held.in_flight == 2
    held.decide(first, ACCEPT)
    assert (held.in_flight, held.waiting()) == (1, {P})
    sent = held.take([P])[P]
    assert (sent, held.take([P])) == ([Sent(first, ACCEPT)], {})
    assert not held.is_settled
    held.answered(sent, NONE, 0.0, LOCK_S)
    assert (first.result, held.is_settled, held.lost) == (NONE, True, [])


def test_only_the_first_decision_counts() -> None:
    held = HeldRecords()
    [record] = acquire(held)
    held.decide(record, ACCEPT)
    held.decide(record, RELEASE)
    assert sent_by(held) == [(0, ACCEPT)]


def test_a_lock_that_is_kept_is_renewed_at_half_its_time() -> None:
    """KIP-1222: RENEW begins the lock anew."""
    held = HeldRecords()
    [record] = acquire(held)
    assert held.look(14.9) == 15.0
    assert not held.has_renewals([P])
    held.look(15.0)
    assert held.has_renewals([P])
    sent = held.take([P])[P]
    assert sent == [Sent(record, RENEW)]
    held.answered(sent, NONE, 15.0, LOCK_S)
    assert held.look(16.0) == 30.0
    assert record.locked_until == 45.0


def test_a_lock_that_is_not_kept_ends_and_is_reported() -> None:
    """SharePartition: a lock that ends is a release; a later acknowledgement is INVALID_RECORD_STATE."""
    held = HeldRecords()
    [record] = acquire(held)
    held.keep_lock(record, False)
    held.look(29.9)
    assert held.lost == []
    held.look(30.0)
    assert (record.result, held.lost, held.in_flight) == (LOCK_ENDED, [record], 0)
    held.decide(record, ACCEPT)
    assert held.take([P]) == {}


def test_a_release_that_waits_keeps_its_lock_until_its_time() -> None:
    """The broker has no delays: the member holds the record."""
    held = HeldRecords()
    [record] = acquire(held)
    held.keep_lock(record, False)
    held.decide(record, RELEASE, 20.0)
    held.look(15.0)
    assert sent_by(held) == [(0, RENEW)]
    assert held.in_flight == 1
    held.answered([Sent(record, RENEW)], NONE, 15.0, LOCK_S)
    held.look(19.9)
    assert held.waiting() == set()
    held.look(20.0)
    assert sent_by(held) == [(0, RELEASE)]


def test_a_release_with_a_delay_is_sent_at_once_where_the_broker_holds_back() -> None:
    """The record's room is free, and its lock ends with the response."""
    held = HeldRecords()
    [record] = held.acquired(P, [AcquiredRange(0, 0, 1)], 0.0, LOCK_S, broker_delays=True).values()
    held.decide(record, RELEASE, 20.0)
    assert held.in_flight == 0
    assert record.held_until == 20.0
    assert sent_by(held) == [(0, RELEASE)]


def test_a_release_time_that_comes_while_a_renewal_is_under_way_is_not_missed() -> None:
    held = HeldRecords()
    [record] = acquire(held)
    held.decide(record, RELEASE, 15.2)
    held.look(15.0)
    renewal = held.take([P])[P]
    held.look(15.1)
    held.answered(renewal, NONE, 15.0, LOCK_S)
    held.look(15.2)
    assert sent_by(held) == [(0, RELEASE)]


def test_a_decision_while_the_renewal_is_under_way_is_sent_behind_it() -> None:
    held = HeldRecords()
    [record] = acquire(held)
    held.look(15.0)
    renewal = held.take([P])[P]
    held.decide(record, ACCEPT)
    assert held.take([P]) == {}, "one request at a time for one record"
    held.answered(renewal, NONE, 15.0, LOCK_S)
    assert sent_by(held) == [(0, ACCEPT)]


def test_a_refusal_is_divided_until_the_record_is_found() -> None:
    """SharePartition.acknowledge rolls all of one partition's batches back if one record is in another state."""
    held = HeldRecords()
    records = acquire(held, 4)
    for record in records:
        held.decide(record, ACCEPT)
    requests = 0
    while held.waiting():
        sent = held.take([P])[P]
        bad = records[2] in [one.record for one in sent]
        held.answered(sent, ErrorCode.INVALID_RECORD_STATE if bad else NONE, 0.0, LOCK_S)
        requests += 1
    assert [record.result for record in records] == [NONE, NONE, ErrorCode.INVALID_RECORD_STATE, NONE]
    assert (held.lost, requests, held.is_settled) == ([records[2]], 5, True)


def test_a_leader_that_moved_or_a_lost_session_is_no_answer() -> None:
    """NOT_LEADER_OR_FOLLOWER and session errors: the acknowledgement is sent again, while its lock lasts."""
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.SHARE_SESSION_NOT_FOUND):
        held = HeldRecords()
        [record] = acquire(held)
        held.decide(record, ACCEPT)
        held.answered(held.take([P])[P], code, 0.0, LOCK_S)
        assert sent_by(held) == [(0, ACCEPT)]
        held.unanswered([Sent(record, ACCEPT)])
        held.look(30.0)
        assert (record.result, held.lost, held.is_settled) == (LOCK_ENDED, [record], True)


def test_after_a_refused_renewal_the_lock_ends_in_its_time() -> None:
    """SharePartition: also INVALID_RECORD_STATE if the group has share.renew.acknowledge.enable=false."""
    held = HeldRecords()
    [record] = acquire(held)
    held.look(15.0)
    held.answered(held.take([P])[P], ErrorCode.INVALID_RECORD_STATE, 15.0, LOCK_S)
    held.keep_lock(record, True)
    held.look(29.0)
    assert (held.take([P]), held.lost) == ({}, [])
    held.look(30.0)
    assert (record.result, held.lost, held.in_flight) == (LOCK_ENDED, [record], 0)


def test_a_renewal_without_response_is_sent_again() -> None:
    held = HeldRecords()
    acquire(held)
    held.look(15.0)
    held.unanswered(held.take([P])[P])
    held.look(16.0)
    assert sent_by(held) == [(0, RENEW)]


def test_a_record_that_is_delivered_again_ends_its_earlier_delivery() -> None:
    """The session was lost, the broker released it, and gave it to this member again."""
    held = HeldRecords()
    [old] = acquire(held)
    held.decide(old, ACCEPT)
    [new] = acquire(held, now=1.0)
    assert (old.result, new.result, held.lost, held.in_flight) == (LOCK_ENDED, None, [old], 1)
    assert held.take([P]) == {}
    held.decide(new, ACCEPT)
    assert held.take([P]) == {P: [Sent(new, ACCEPT)]}


def test_at_the_end_all_is_released_at_once() -> None:
    held = HeldRecords()
    undecided, waits, accepted = acquire(held, 3)
    held.decide(waits, RELEASE, 100.0)
    held.decide(accepted, ACCEPT)
    for record in held:
        held.release_now(record)
    assert sorted(sent_by(held)) == [(undecided.offset, RELEASE), (waits.offset, RELEASE), (accepted.offset, ACCEPT)]
    assert held.in_flight == 0


def test_a_transaction_has_a_record_alone() -> None:
    """KIP-1289's draft: no renewal, no other decision, and no end of its lock here while the request is under way."""
    held = HeldRecords()
    [record] = acquire(held)
    held.look(15.0)
    held.give([record], ACCEPT)
    held.decide(record, RELEASE)
    held.release_now(record)
    held.look(31.0)
    assert (held.take([P]), held.in_flight, held.is_settled) == ({}, 0, False)
    held.give_ends([record], taken=True)
    assert (record.result, list(held), held.lost, held.is_settled) == (NONE, [], [], True)


def test_what_a_transaction_did_not_take_is_undecided_again() -> None:
    held = HeldRecords()
    [record] = acquire(held)
    held.give([record], ACCEPT)
    held.give_ends([record], taken=False)
    assert (record.decision, held.in_flight) == (None, 1)
    held.look(15.0)
    assert sent_by(held) == [(0, RENEW)]


class AnyOrder(RuleBasedStateMachine):
    """Whatever comes in whatever order: every record ends with one result, and the counts fit."""

    def __init__(self) -> None:
        super().__init__()
        self.held = HeldRecords()
        self.now = 0.0
        self.next_offset = 0
        self.all: list[HeldRecord] = []
        self.under_way: list[list[Sent]] = []
        self.given: list[HeldRecord] = []

    @rule(count=st.integers(1, 4), again=st.booleans())
    def acquire(self, count: int, again: bool) -> None:
        first = max(self.next_offset - 2, 0) if again else self.next_offset
        self.next_offset = max(first + count, self.next_offset)
        made = self.held.acquired(P, [AcquiredRange(first, first + count - 1, 1)], self.now, LOCK_S)
        self.all += made.values()

    @precondition(lambda self: self.all)
    @rule(data=st.data(), kind=st.sampled_from([ACCEPT, RELEASE]), delay=st.sampled_from([None, 5.0, 40.0]))
    def decide(self, data: st.DataObject, kind: AcknowledgeType, delay: float | None) -> None:
        record = data.draw(st.sampled_from(self.all))
        if delay is None:
            self.held.decide(record, kind)
        else:
            self.held.decide(record, RELEASE, self.now + delay)

    @precondition(lambda self: self.all)
    @rule(data=st.data(), keep=st.booleans())
    def keep(self, data: st.DataObject, keep: bool) -> None:
        record = data.draw(st.sampled_from(self.all))
        if record.result is None and record.decision is None:
            self.held.keep_lock(record, keep)

    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        able = [one for one in self.all if not one.under_way and one.decision is None and one.result is None]
        if able:
            record = data.draw(st.sampled_from(able))
            self.held.give([record], ACCEPT)
            self.given.append(record)

    @precondition(lambda self: self.given)
    @rule(taken=st.booleans())
    def give_ends(self, taken: bool) -> None:
        self.held.give_ends([self.given.pop(0)], taken=taken)

    @rule(step=st.sampled_from([0.0, 1.0, 16.0, 31.0]))
    def look(self, step: float) -> None:
        self.now += step
        self.held.look(self.now)

    @rule()
    def take(self) -> None:
        if sent := self.held.take([P]).get(P):
            assert len({one.record.offset for one in sent}) == len(sent), "an offset twice in a request"
            self.under_way.append(sent)

    @precondition(lambda self: self.under_way)
    @rule(code=st.sampled_from([NONE, ErrorCode.INVALID_RECORD_STATE, ErrorCode.NOT_LEADER_OR_FOLLOWER, None]))
    def answer(self, code: ErrorCode | None) -> None:
        sent = self.under_way.pop(0)
        if code is None:
            self.held.unanswered(sent)
        else:
            self.held.answered(sent, code, self.now, LOCK_S)

    @invariant()
    def the_count_fits(self) -> None:
        open_ones = [one for one in self.all if one.counts]
        assert self.held.in_flight == len(open_ones)
        assert all(one.result is None for one in open_ones)
        assert len(self.held.lost) == len([one for one in self.all if one.result not in (None, NONE)])

    def teardown(self) -> None:
        for sent in self.under_way:
            self.held.answered(sent, NONE, self.now, LOCK_S)
        self.held.give_ends(self.given, taken=False)
        for record in self.held:
            self.held.release_now(record)
        for _ in range(100):
            for sent in self.held.take([P]).values():
                self.held.answered(sent, NONE, self.now, LOCK_S)
        assert self.held.is_settled
        assert [one for one in self.all if one.result is None] == []


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
