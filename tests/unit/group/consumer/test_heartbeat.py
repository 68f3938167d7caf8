"""ConsumerGroupHeartbeat: epochs, timers, metadata, records; what the plays of tests/golden do not show (G4)."""

from dataclasses import replace

import pytest

from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer.context import METADATA_REFRESH_MS
from fencepost.coordinator.group.consumer.member import MemberState
from fencepost.coordinator.group.consumer.records import (
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    TargetEpochRecord,
    TargetRecord,
    TopicsRecord,
)
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.coordinator.group.timers import TimerKind
from fencepost.protocol.errors import ErrorCode
from tests.unit.group.consumer.kit import NOW, Paper, assignment, image, reported, topic_id

SESSION_MS = GroupConfig().group_consumer_session_timeout_ms


def refusal(paper: Paper, *asked: object, **fields: object) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        paper.beat(*asked, **fields)  # type: ignore[arg-type]
    return refused.value.code


def pair() -> Paper:
    """`a` and `b`, two partitions each, stable in epoch 3."""
    paper = Paper()
    paper.beat("a", 0)
    paper.beat("b", 0)
    paper.beat("a", 2, reported=reported(t=(0, 1)))
    paper.beat("b", 3)
    assert paper.group.state == "Stable"
    return paper


def test_a_join_writes_the_member_the_epoch_the_target_and_what_it_has_g4() -> None:
    paper = Paper()
    reply = paper.beat("a", 0)
    kinds = [type(record) for record in paper.context.log]
    assert kinds == [MemberRecord, EpochRecord, TargetRecord, TargetEpochRecord, CurrentRecord]
    assert (reply.member_epoch, reply.assignment) == (2, assignment(t=(0, 1, 2, 3)))
    assert paper.timers(TimerKind.SESSION)[0].delay_ms == SESSION_MS


def test_a_heartbeat_with_nothing_new_writes_nothing_and_prolongs_the_session_g4() -> None:
    paper = pair()
    reply = paper.beat("a", 3)
    assert (paper.context.log, reply.assignment) == ([], None)
    assert [timer.delay_ms for timer in paper.context.timers] == [SESSION_MS]


def test_a_full_heartbeat_hears_everything_g4() -> None:
    paper = pair()
    reply = paper.beat("a", 3, rebalance_timeout_ms=60_000, topics=("t",), reported=reported(t=(0, 1)))
    assert (paper.context.log, reply.assignment) == ([], assignment(t=(0, 1)))


@pytest.mark.parametrize("field", ["rebalance_timeout_ms", "topics", "reported"])
def test_a_heartbeat_that_lacks_a_field_is_not_full_g4(field: str) -> None:
    """KIP-848: only a request with all fields asks for the assignment again."""
    fields = {"rebalance_timeout_ms": 60_000, "topics": ("t",), "reported": reported(t=(0, 1))}
    del fields[field]
    assert pair().beat("a", 3, **fields).assignment is None


def test_who_must_give_back_has_its_rebalance_timeout_for_it_g4() -> None:
    paper = Paper()
    paper.beat("a", 0, rebalance_timeout_ms=1234)
    paper.beat("b", 0)
    paper.beat("a", 2)
    [timer] = paper.timers(TimerKind.REBALANCE)
    assert (timer.delay_ms, timer.epoch) == (1234, 2)
    paper.beat("a", 2, reported=reported(t=(0, 1)))
    assert paper.timers(TimerKind.REBALANCE)[0].delay_ms is None


def test_an_answer_that_was_lost_is_given_again_g4() -> None:
    """The previous epoch is taken, if what the member has is its own by now."""
    paper = pair()
    assert paper.member("a").previous_epoch == 2
    reply = paper.beat("a", 2, rebalance_timeout_ms=60_000, topics=("t",), reported=reported(t=(0,)))
    assert (reply.member_epoch, reply.assignment) == (3, assignment(t=(0, 1)))
    assert refusal(paper, "a", 2, reported=reported(t=(0, 3))) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refusal(paper, "a", 2) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refusal(paper, "a", 1, reported=()) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refusal(paper, "a", 4) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_full_group_takes_no_member_and_keeps_its_own_g4() -> None:
    paper = Paper(config=GroupConfig(group_consumer_max_size=1))
    paper.beat("a", 0)
    assert refusal(paper, "b", 0) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert paper.beat("a", 0).member_epoch == 2


class TestTopics:
    """What becomes of the cluster raises the group's epoch with the next heartbeat after it was noticed."""

    def test_a_topic_that_grew_is_assigned_anew_g4(self) -> None:
        paper = pair()
        paper.image = image(t=6)
        assert paper.beat("a", 3).member_epoch == 3, "nobody said that topics changed"
        paper.group.refresh_at_ms = 0
        assert paper.beat("a", 3).member_epoch == 4
        assert paper.group.epoch == 4

    def test_it_is_looked_at_every_hour_at_the_latest_g4(self) -> None:
        paper = pair()
        paper.image = image(t=6)
        paper.now_ms = NOW + METADATA_REFRESH_MS
        assert paper.beat("a", 3).member_epoch == 4

    def test_a_look_that_finds_nothing_new_changes_nothing_g4(self) -> None:
        paper = pair()
        paper.group.refresh_at_ms = 0
        paper.beat("a", 3)
        assert paper.context.log == []
        assert paper.group.refresh_at_ms == NOW + METADATA_REFRESH_MS

    def test_a_topic_that_is_gone_is_taken_away_g4(self) -> None:
        paper = Paper(image=image(t=2, u=1))
        paper.beat("a", 0, topics=("t", "u"))
        paper.image = image(t=2)
        paper.group.refresh_at_ms = 0
        reply = paper.beat("a", 2, reported=reported(t=(0, 1)))
        assert (reply.member_epoch, reply.assignment) == (3, assignment(t=(0, 1)))

    def test_the_record_of_older_brokers_is_taken_away_g8(self) -> None:
        paper = pair()
        paper.group.apply(TopicsRecord("g", True))
        paper.group.refresh_at_ms = 0
        paper.beat("a", 3)
        assert paper.context.log == [TopicsRecord("g", False)]
        assert not paper.group.has_topics_record


class TestTheAssignmentInterval:
    """`group.consumer.assignment.interval.ms` (KIP-1263)."""

    def test_a_newcomer_waits_for_it_to_pass_g4(self) -> None:
        paper = Paper(config=GroupConfig(group_consumer_assignment_interval_ms=1000))
        paper.beat("a", 0)
        reply = paper.beat("b", 0)
        assert (reply.member_epoch, reply.assignment, paper.group.state) == (2, {}, "Assigning")
        paper.now_ms += 1000
        paper.beat("a", 2)
        assert (paper.group.assignment_epoch, paper.group.state) == (3, "Reconciling")

    def test_it_is_over_when_the_clock_has_gone_back_g4(self) -> None:
        """Ours: Kafka's canComputeNextTargetAssignment waits for as long as the clock went back."""
        paper = Paper(config=GroupConfig(group_consumer_assignment_interval_ms=1000))
        paper.beat("a", 0)
        paper.beat("b", 0)
        paper.now_ms -= 3_600_000
        paper.beat("a", 2)
        assert paper.group.assignment_epoch == 3

    def test_of_zero_it_binds_no_member_g4(self) -> None:
        paper = Paper()
        paper.beat("a", 0)
        assert paper.beat("b", 0).member_epoch == 3


class TestAssignors:
    def test_the_one_most_ask_for_is_taken_g4(self) -> None:
        paper = Paper(image=image(t=3))
        paper.beat("a", 0, assignor="range")
        paper.beat("b", 0, assignor="range")
        paper.beat("c", 0, assignor="uniform")
        assert paper.group.assignors == {"range": 2, "uniform": 1}
        assert [paper.group.target[name][topic_id("t")] for name in "abc"] == [{0}, {1}, {2}]

    def test_the_first_configured_one_where_no_member_asks_g4(self) -> None:
        paper = Paper(image=image(t=3), config=GroupConfig(group_consumer_assignors=("range", "uniform")))
        paper.beat("b", 0)
        paper.beat("a", 0)
        assert paper.group.target["a"][topic_id("t")] == {0, 1}


class TestLeaving:
    def test_for_good_gives_partitions_to_others_with_the_next_epoch_g4(self) -> None:
        paper = pair()
        paper.beat("a", -1)
        assert (list(paper.group.members), paper.group.epoch, paper.group.state) == (["b"], 4, "Assigning")
        assert {timer.kind for timer in paper.context.timers if timer.delay_ms is None} >= {TimerKind.SESSION}
        assert paper.beat("b", 3).assignment == assignment(t=(0, 1, 2, 3))

    def test_a_static_member_that_is_away_keeps_its_partitions_g4(self) -> None:
        paper = Paper()
        paper.beat("a", 0, instance_id="i")
        paper.beat("a", -2, instance_id="i")
        assert (paper.member("a").epoch, paper.group.epoch) == (-2, 2)
        reply = paper.beat("c", 0, instance_id="i")
        assert (reply.member_epoch, reply.assignment) == (2, assignment(t=(0, 1, 2, 3)))
        assert list(paper.group.members) == ["c"]
        assert paper.group.epoch == 2, "no rebalance"

    def test_of_one_with_another_subscription_the_heir_makes_a_rebalance_g4(self) -> None:
        paper = Paper(image=image(t=2, u=2))
        paper.beat("a", 0, instance_id="i")
        paper.beat("a", -2, instance_id="i")
        reply = paper.beat("c", 0, instance_id="i", topics=("u",))
        assert (reply.member_epoch, reply.assignment) == (3, assignment(u=(0, 1)))


def test_a_member_in_a_state_of_a_newer_broker_is_fenced_g4() -> None:
    paper = pair()
    strange = replace(paper.member("a"), state=MemberState.UNKNOWN)
    paper.group.apply(CurrentRecord("g", "a", strange))
    assert refusal(paper, "a", 3) is ErrorCode.FENCED_MEMBER_EPOCH
