"""The producer's numbers, one case at a time; any mixture of them: tests/property/test_producer_sequences.py."""

from typing import Any

import pytest

from fencepost.broker.log.producer_entries import BatchMetadata
from fencepost.broker.log.producer_state import AppendOrigin, ProducerStates, Refusal
from fencepost.client.core.sequences import PartitionQueue, SequencedBatch, Verdict, bumped
from fencepost.protocol.batch_header import BatchHeader
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

NONE, OUT_OF_ORDER = ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
UNKNOWN_PRODUCER = ErrorCode.UNKNOWN_PRODUCER_ID


def batch(count: int = 1) -> SequencedBatch:
    made = SequencedBatch(0.0, 1.0)
    made.records = [(0, None, None, ())] * count
    return made


def queue_with(*counts: int) -> tuple[PartitionQueue[Any], list[SequencedBatch]]:
    """A partition of producer (7, 0), with batches of so many records, all in flight."""
    queue: PartitionQueue[Any] = PartitionQueue(TopicPartition("t", 0))
    queue.adopt((7, 0))
    queue.accepted_id = 7
    batches = [batch(count) for count in counts]
    queue.waiting.extend(batches)
    for one in batches:
        assert queue.next_batch(0.0) is one
    return queue, batches


def header_of(one: SequencedBatch) -> BatchHeader:
    count = len(one.records)
    return BatchHeader(0, 0, -1, 2, 0, 0, count - 1, 0, 0, 7, 0, one.base_sequence, count)


def numbers(queue: PartitionQueue[Any]) -> list[int]:
    return [one.base_sequence for one in queue.resend]


def test_p2_numbers_follow_one_another_and_wrap() -> None:
    queue, _ = queue_with()
    queue.next_sequence = 2**31 - 2
    queue.waiting.extend([batch(3), batch(2)])
    first, second = queue.next_batch(0.0), queue.next_batch(0.0)
    assert first is not None
    assert second is not None
    assert (first.base_sequence, second.base_sequence) == (2**31 - 2, 1)
    assert not queue.is_first_unresolved(second)
    queue.unanswered(second, sent=True)
    queue.unanswered(first, sent=True)
    assert numbers(queue) == [2**31 - 2, 1]


def test_p5_a_partition_that_knows_nothing_of_us_gets_one_batch_first() -> None:
    """It would take any number, so also the second batch while the first came too early, to a leader to be."""
    queue: PartitionQueue[Any] = PartitionQueue(TopicPartition("t", 0))
    queue.adopt((7, 0))
    one, two, three = batches = [batch(), batch(), batch()]
    queue.waiting.extend(batches)
    assert queue.next_batch(0.0) is one
    assert queue.next_batch(0.0) is None
    assert queue.wakes_at(0.0) == float("inf")
    queue.answered(one, ErrorCode.NOT_LEADER_OR_FOLLOWER, False)
    assert queue.next_batch(0.0) is one
    queue.answered(one, NONE, False)
    assert (queue.next_batch(0.0), queue.next_batch(0.0)) == (two, three)
    queue.answered(two, NONE, False)
    queue.answered(three, NONE, False)
    queue.adopt((7, 1))
    queue.waiting.extend([batch(), batch()])
    assert queue.next_batch(0.0) is not None
    assert queue.next_batch(0.0) is not None, "a new epoch of a producer that it knows begins at 0 or not at all"
    for one in list(queue.in_flight):
        queue.answered(one, NONE, False)
    queue.reconnected()
    queue.waiting.extend([batch(), batch()])
    assert queue.next_batch(0.0) is not None
    assert queue.next_batch(0.0) is None, "it may be another life of the broker, without its memory"


def test_p3_no_more_than_five_are_in_flight() -> None:
    queue, _ = queue_with(1, 1, 1, 1, 1)
    queue.waiting.append(batch())
    assert queue.next_batch(0.0) is None


def test_p3_no_more_than_five_follow_the_oldest_unanswered_one() -> None:
    """The leader moved: later batches are acknowledged there while the first one's answer is still awaited here.

    The new leader has it, and would have forgotten its number, so that nobody could tell when it is asked again.
    """
    states, end = ProducerStates(), 0
    queue, (first, *_) = queue_with(1, 1)
    sent = list(queue.in_flight)
    for _ in range(20):
        while sent:
            one = sent.pop(0)
            admitted = states.admit(header_of(one), end, AppendOrigin.CLIENT)
            assert not isinstance(admitted, Refusal | BatchMetadata)
            states.commit_data(admitted)
            end += 1
            if one is not first:
                queue.answered(one, NONE, False)
        queue.waiting.append(batch())
        following = queue.next_batch(0.0)
        sent += [following] if following is not None else []
    assert queue.wakes_at(0.0) == float("inf")
    queue.unanswered(first, sent=True)
    assert queue.next_batch(0.0) is first
    assert isinstance(states.admit(header_of(first), end, AppendOrigin.CLIENT), BatchMetadata), (
        "known as a repeated one"
    )
    queue.answered(first, NONE, False)
    assert queue.next_batch(0.0) is not None


def test_p3_duplicate_sequence_is_success() -> None:
    queue, (one,) = queue_with(1)
    assert queue.answered(one, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, False) is Verdict.ACCEPTED
    assert queue.idle


def test_what_is_sent_again_goes_alone_and_before_anything_new() -> None:
    queue, (one, two, three) = queue_with(1, 1, 1)
    queue.waiting.append(batch())
    queue.answered(one, ErrorCode.NOT_LEADER_OR_FOLLOWER, False)
    assert queue.next_batch(0.0) is None, "two and three are still unanswered"
    queue.answered(two, OUT_OF_ORDER, False)
    queue.answered(three, OUT_OF_ORDER, False)
    assert not queue.needs_epoch(), "that they were out of order was to be expected"
    for expected in (one, two, three):
        assert queue.next_batch(0.0) is expected
        assert not queue.resend or queue.next_batch(0.0) is None
        queue.answered(expected, NONE, False)


@pytest.mark.parametrize("code", [OUT_OF_ORDER, UNKNOWN_PRODUCER, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_p7_a_broker_that_lost_our_place_gets_the_same_batches_under_a_new_epoch(code: ErrorCode) -> None:
    queue, (one, two) = queue_with(2, 3)
    assert queue.answered(one, code, False) is Verdict.AGAIN
    assert queue.answered(two, code, False) is Verdict.AGAIN
    assert queue.needs_epoch()
    assert queue.adopt((7, 1)) == []
    assert queue.resend == [one, two]
    assert numbers(queue) == [0, 2]
    assert queue.next_sequence == 5


def test_p7_what_may_be_in_the_log_is_never_sent_under_another_number() -> None:
    """Kafka's snapshot keeps one batch of a producer: after a restart it knows `two`, and no more that it has `one`."""
    queue, (one, two, three) = queue_with(1, 1, 1)
    queue.unanswered(one, sent=True)
    queue.unanswered(two, sent=True)
    queue.unanswered(three, sent=False)
    assert queue.next_batch(0.0) is one
    queue.answered(one, OUT_OF_ORDER, False)
    assert queue.adopt((7, 1)) == [one, two]
    assert queue.resend == [three], "three never left: it can be sent under a new number"
    assert numbers(queue) == [0]


def test_p7_what_follows_a_batch_that_was_refused_can_not_be_in_the_log() -> None:
    queue, (one, two) = queue_with(1, 1)
    assert queue.answered(one, ErrorCode.INVALID_RECORD, False) is Verdict.REJECTED
    queue.unanswered(two, sent=True)
    assert queue.next_batch(0.0) is two, "its answer tells whether it was out of order"
    queue.answered(two, OUT_OF_ORDER, False)
    assert queue.adopt((7, 1)) == []
    assert queue.resend == [two]


@pytest.mark.parametrize("written", [True, False])
def test_a_batch_that_expires_in_flight_does_not_misnumber_the_next(written: bool) -> None:
    """Its records have failed, its number is still open: what follows waits until it is settled."""
    queue, (one, two) = queue_with(2, 1)
    assert not queue.give_up(one), "its answer is still awaited"
    queue.waiting.append(batch())
    if written:
        assert queue.answered(one, NONE, False) is Verdict.GONE
        assert queue.answered(two, NONE, False) is Verdict.ACCEPTED
        after = queue.next_batch(0.0)
        assert after is not None
        assert after.base_sequence == 3
        return
    assert queue.unanswered(one, sent=True) is Verdict.GONE
    queue.unanswered(two, sent=False)
    assert queue.next_batch(0.0) is two, "under its old number, which tells whether the lost one had arrived"
    queue.answered(two, OUT_OF_ORDER, False)
    assert queue.needs_epoch()
    assert queue.adopt((7, 1)) == []
    assert numbers(queue) == [0]


def test_a_lost_batch_that_had_arrived_after_all_costs_no_epoch() -> None:
    queue, (one, two) = queue_with(2, 1)
    queue.give_up(one)
    queue.unanswered(one, sent=True)
    queue.unanswered(two, sent=True)
    queue.next_batch(0.0)
    assert queue.answered(two, NONE, False) is Verdict.ACCEPTED
    assert not queue.needs_epoch()


def test_nothing_new_follows_a_number_that_will_not_be_sent() -> None:
    """P4: only a new epoch can follow it."""
    queue, (one,) = queue_with(1)
    queue.unanswered(one, sent=True)
    assert queue.give_up(one)
    queue.waiting.append(batch())
    assert queue.next_batch(0.0) is None
    assert queue.needs_epoch()
    queue.adopt((7, 1))
    after = queue.next_batch(0.0)
    assert after is not None
    assert after.base_sequence == 0


def test_halves_take_the_numbers_of_the_whole() -> None:
    queue, (one, two) = queue_with(5, 1)
    assert queue.answered(one, ErrorCode.MESSAGE_TOO_LARGE, False) is Verdict.SPLIT
    queue.answered(two, OUT_OF_ORDER, False)
    parts = [batch(2), batch(3)]
    queue.replace(one, parts)
    assert queue.resend == [*parts, two]
    assert numbers(queue) == [0, 2, 5]


def test_one_record_that_is_too_large_is_refused() -> None:
    queue, (one,) = queue_with(1)
    assert queue.answered(one, ErrorCode.RECORD_LIST_TOO_LARGE, False) is Verdict.REJECTED


@pytest.mark.parametrize(
    ("code", "may_be_written"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, False),
    ],
)
def test_after_which_errors_a_batch_may_be_in_the_log(code: ErrorCode, may_be_written: bool) -> None:
    queue, (one,) = queue_with(1)
    assert queue.answered(one, code, False) is Verdict.AGAIN
    assert one.may_be_written is may_be_written


def test_in_a_transaction_only_the_coordinator_gives_epochs() -> None:
    """T17: a lost place ends the transaction, it does not bump."""
    queue, (one, two) = queue_with(1, 1)
    assert queue.answered(two, OUT_OF_ORDER, True) is Verdict.AGAIN
    assert queue.answered(one, OUT_OF_ORDER, True) is Verdict.REJECTED
    assert not queue.restart


def test_p12_the_last_epoch() -> None:
    assert bumped((7, 32765)) == (7, 32766)
    assert bumped((7, 32766)) is None
