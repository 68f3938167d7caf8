"""The KIP-848 member, heartbeat by heartbeat (G4)."""

import pytest

from fencepost.client.core.consumer_member import (
    ConsumerHeartbeat,
    ConsumerMember,
    DesiredSubscription,
    HeartbeatResult,
    TopicIdPartition,
)
from fencepost.client.core.group_steps import STAY, Assign, Fail, Resolve, Revoke
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

ID, OTHER_ID = b"t" * 16, b"T" * 16
WISH = DesiredSubscription(("t",), None, "uniform")


def places(*numbers: int, topic_id: bytes = ID) -> frozenset[TopicIdPartition]:
    return frozenset((topic_id, number) for number in numbers)


def partitions(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", number) for number in numbers)


def beat(
    machine: ConsumerMember, epoch: int, assignment: frozenset[TopicIdPartition] | None = None
) -> ConsumerHeartbeat:
    sent = machine.heartbeat()
    machine.answered(sent, HeartbeatResult(ErrorCode.NONE, "m", epoch, assignment))
    return sent


def settled(*numbers: int, instance: str | None = None) -> ConsumerMember:
    machine = ConsumerMember("m", WISH, instance)
    machine.named({ID: "t", OTHER_ID: "t"})
    beat(machine, 1, places(*numbers))
    machine.assigned(partitions(*numbers))
    beat(machine, 1)
    assert machine.step() == STAY
    assert not machine.heartbeat_is_due
    return machine


def test_it_joins_with_everything_and_then_says_only_what_changes() -> None:
    machine = ConsumerMember("m", WISH)
    assert machine.heartbeat_is_due
    assert machine.heartbeat() == ConsumerHeartbeat("m", 0, WISH, frozenset())
    beat(machine, 3, places(0))
    assert machine.step() == Resolve(frozenset({ID}))
    machine.named({ID: "t"})
    assert machine.step() == Assign(partitions(0))
    assert not machine.heartbeat_is_due
    machine.assigned(partitions(0))
    assert machine.heartbeat_is_due, "the broker waits for the acknowledgement"
    assert beat(machine, 3) == ConsumerHeartbeat("m", 3, None, places(0))
    assert machine.heartbeat() == ConsumerHeartbeat("m", 3)
    machine.subscribe(DesiredSubscription(("t", "u"), None, "uniform"))
    assert machine.heartbeat_is_due
    assert machine.heartbeat() == ConsumerHeartbeat("m", 3, DesiredSubscription(("t", "u"), None, "uniform"))


def test_first_it_gives_up_then_it_says_so_then_it_takes() -> None:
    machine = settled(0, 1)
    beat(machine, 2, places(1, 2))
    assert machine.step() == Revoke(partitions(0))
    machine.revoked(partitions(0))
    assert machine.step() == STAY, "not before the broker knows"
    assert beat(machine, 2) == ConsumerHeartbeat("m", 2, None, places(1))
    assert machine.step() == Assign(partitions(2))
    machine.assigned(partitions(2))
    assert beat(machine, 2) == ConsumerHeartbeat("m", 2, None, places(1, 2))
    assert machine.owned == partitions(1, 2)


def test_a_topic_made_anew_under_its_old_name_is_another_one() -> None:
    machine = settled(0)
    beat(machine, 2, places(0, topic_id=OTHER_ID))
    assert machine.step() == Revoke(partitions(0))
    machine.revoked(partitions(0))
    beat(machine, 2)
    assert machine.step() == Assign(partitions(0))
    machine.assigned(partitions(0))
    assert machine.heartbeat().owned == places(0, topic_id=OTHER_ID)


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_who_is_fenced_puts_everything_down_and_joins_anew(code: ErrorCode) -> None:
    machine = settled(0, 1)
    machine.answered(machine.heartbeat(), HeartbeatResult(code))
    assert machine.step() == Revoke(partitions(0, 1), lost=True)
    assert machine.has_lost
    assert not machine.sends_heartbeats, "it must not join with what is somebody else's"
    machine.revoked(partitions(0, 1), lost=True)
    assert machine.heartbeat_is_due
    assert machine.heartbeat() == ConsumerHeartbeat("m", 0, WISH, frozenset())


def test_a_commit_that_is_fenced_tells_the_same_and_a_stale_one_nothing() -> None:
    machine = settled(0)
    machine.commit_rejected(1, ErrorCode.STALE_MEMBER_EPOCH)
    machine.commit_rejected(0, ErrorCode.FENCED_MEMBER_EPOCH)
    assert machine.step() == STAY
    machine.commit_rejected(1, ErrorCode.UNKNOWN_MEMBER_ID)
    assert machine.step() == Revoke(partitions(0), lost=True)


def test_after_an_answer_that_was_lost_it_says_everything() -> None:
    machine = settled(0)
    machine.unanswered()
    assert machine.heartbeat() == ConsumerHeartbeat("m", 1, WISH, places(0))
    assert machine.heartbeat().is_full


def test_an_answer_to_another_epoch_says_nothing() -> None:
    machine = settled(0)
    late = machine.heartbeat()
    machine.expelled()
    machine.answered(late, HeartbeatResult(ErrorCode.NONE, "m", 1, places(0, 1)))
    assert machine.epoch == 0
    assert machine.step() == Revoke(partitions(0), lost=True)


def test_a_static_place_is_waited_for() -> None:
    machine = ConsumerMember("m", WISH, "i")
    machine.answered(machine.heartbeat(), HeartbeatResult(ErrorCode.UNRELEASED_INSTANCE_ID))
    assert machine.waits_for_instance_id
    assert machine.sends_heartbeats
    assert not machine.heartbeat_is_due, "with the next interval"
    beat(machine, 1, places())
    assert not machine.waits_for_instance_id


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_it_leaves_for_good_or_for_a_while(instance: str | None, epoch: int) -> None:
    assert ConsumerMember("m", WISH, instance).leave_heartbeat() is None
    assert settled(0, instance=instance).leave_heartbeat() == ConsumerHeartbeat("m", epoch)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_what_no_further_try_would_mend_ends_it(code: ErrorCode) -> None:
    machine = settled(0)
    machine.answered(machine.heartbeat(), HeartbeatResult(code))
    machine.revoked(partitions(0), lost=True)
    assert machine.step() == Fail(code, "ConsumerGroupHeartbeat")
    assert not machine.sends_heartbeats


def test_a_broker_that_makes_the_ids_is_believed() -> None:
    """Version 0, before KIP-1082."""
    machine = ConsumerMember("", WISH)
    sent = machine.heartbeat()
    machine.answered(sent, HeartbeatResult(ErrorCode.NONE, "made", 1, frozenset()))
    assert machine.heartbeat().member_id == "made"
