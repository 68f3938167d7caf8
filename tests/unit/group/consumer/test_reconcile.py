"""How a member gets from what it has to its target, step by step (G4); the cases of Kafka's own tests."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fencepost.coordinator.group.consumer.member import ConsumerMember, MemberState
from fencepost.coordinator.group.consumer.reconcile import Reconciliation, reconcile
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.protocol.errors import ErrorCode
from tests.unit.group.consumer.kit import assignment, owned, reported, topic_id

STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS
BOTH = frozenset({topic_id("t"), topic_id("u")})
MEMBER = ConsumerMember(member_id="a", epoch=10, previous_epoch=10, assigned=owned(10, t=(1, 2), u=(4, 5)))


def towards(
    epoch: int, target: Mapping[bytes, frozenset[int]], taken: Mapping[tuple[str, int], int] | None = None, **more: Any
) -> Reconciliation:
    """A target; `taken` has the partitions that are with somebody else, and in which epoch."""
    by_id = {(topic_id(name), partition): at for (name, partition), at in (taken or {}).items()}
    fields = {"topic_ids": BOTH, "reported": None, **more}
    return Reconciliation(epoch, target, partition_epoch=lambda *key: by_id.get(key, -1), **fields)


def test_at_its_target_nothing_happens_g4() -> None:
    same = towards(10, assignment(t=(1, 2), u=(4, 5)))
    assert reconcile(MEMBER, same) is MEMBER


def test_to_a_new_epoch_with_the_same_partitions_g4() -> None:
    after = reconcile(MEMBER, towards(11, assignment(t=(1, 2), u=(4, 5))))
    assert (after.state, after.epoch, after.previous_epoch) == (STABLE, 11, 10)
    assert after.assigned == MEMBER.assigned, "the epochs in which they were given stay"


def test_partitions_to_give_back_hold_the_member_in_its_epoch_g4() -> None:
    after = reconcile(MEMBER, towards(11, assignment(t=(2, 3), u=(5, 6))))
    assert (after.state, after.epoch) == (UNREVOKED, 10)
    assert after.assigned == owned(10, t=(2,), u=(5,))
    assert after.revoking == owned(10, t=(1,), u=(4,))


def test_what_it_already_stopped_reading_is_not_asked_for_g4() -> None:
    after = reconcile(MEMBER, towards(11, assignment(t=(2, 3)), reported=reported(t=(2,))))
    assert (after.state, after.epoch) == (STABLE, 11)
    assert after.assigned == {topic_id("t"): {2: 10, 3: 11}}


def test_new_partitions_that_are_free_come_at_once_g4() -> None:
    after = reconcile(MEMBER, towards(11, assignment(t=(1, 2, 4), u=(4, 5, 7))))
    assert (after.state, after.epoch) == (STABLE, 11)
    assert after.assigned == {topic_id("t"): {1: 10, 2: 10, 4: 11}, topic_id("u"): {4: 10, 5: 10, 7: 11}}


def test_partitions_that_others_have_are_waited_for_in_the_new_epoch_g4() -> None:
    target = assignment(t=(1, 2, 3), u=(4, 5, 7))
    after = reconcile(MEMBER, towards(11, target, {("t", 3): 10}))
    assert (after.state, after.epoch) == (UNRELEASED, 11)
    assert after.assigned == {topic_id("t"): {1: 10, 2: 10}, topic_id("u"): {4: 10, 5: 10, 7: 11}}
    arrived = reconcile(after, towards(11, target))
    assert (arrived.state, arrived.epoch, arrived.assigned[topic_id("t")][3]) == (STABLE, 11, 11)


class TestWhileItGivesBack:
    """A member in UNREVOKED_PARTITIONS."""

    revoking = replace(MEMBER, state=UNREVOKED, assigned=owned(10, t=(2,), u=(5,)), revoking=owned(10, t=(1,), u=(4,)))

    @pytest.mark.parametrize("said", [None, reported(t=(1, 2), u=(5,)), reported(t=(2,), u=(4, 5))])
    def test_it_goes_on_waiting_until_it_says_so_g4(self, said: Any) -> None:
        assert reconcile(self.revoking, towards(12, assignment(t=(3,)), reported=said)) is self.revoking

    def test_then_it_goes_to_the_newest_target_g4(self) -> None:
        after = reconcile(self.revoking, towards(12, assignment(t=(2, 3), u=(5, 6)), reported=reported(t=(2,), u=(5,))))
        assert (after.state, after.epoch, after.revoking) == (STABLE, 12, {})
        assert after.assigned == {topic_id("t"): {2: 10, 3: 12}, topic_id("u"): {5: 10, 6: 12}}

    def test_there_may_be_more_to_give_back_g4(self) -> None:
        after = reconcile(self.revoking, towards(12, assignment(t=(3,)), reported=reported(t=(2,), u=(5,))))
        assert (after.state, after.epoch) == (UNREVOKED, 10)
        assert after.revoking == owned(10, t=(2,), u=(5,))

    def test_what_it_gives_back_may_become_its_own_again_g4(self) -> None:
        taken = {("t", 1): 10, ("u", 4): 10}
        after = reconcile(
            self.revoking, towards(12, assignment(t=(1, 2), u=(5,)), taken, reported=reported(t=(2,), u=(5,)))
        )
        assert (after.state, after.assigned[topic_id("t")]) == (STABLE, {1: 12, 2: 10})


class TestAChangedSubscription:
    """Nothing that is not subscribed to is kept or given, whatever the target says."""

    def test_takes_partitions_away_before_there_is_a_new_target_g4(self) -> None:
        target = assignment(t=(1, 2), u=(4, 5))
        only_t = frozenset({topic_id("t")})
        after = reconcile(MEMBER, towards(10, target, topic_ids=only_t, subscription_changed=True))
        assert (after.state, after.epoch) == (UNREVOKED, 10)
        assert (after.assigned, after.revoking) == (owned(10, t=(1, 2)), owned(10, u=(4, 5)))

    def test_adds_to_what_is_being_given_back_g4(self) -> None:
        before = replace(MEMBER, state=UNREVOKED, revoking=owned(10, t=(3,)))
        only_t = frozenset({topic_id("t")})
        after = reconcile(before, towards(11, {}, topic_ids=only_t, subscription_changed=True))
        assert after.revoking == {**owned(10, t=(3,)), **owned(10, u=(4, 5))}

    def test_to_the_same_topics_changes_nothing_g4(self) -> None:
        same = towards(10, assignment(t=(1, 2), u=(4, 5)), subscription_changed=True)
        assert reconcile(MEMBER, same) is MEMBER

    def test_a_target_in_a_topic_given_up_is_not_followed_g4(self) -> None:
        only_t = frozenset({topic_id("t")})
        after = reconcile(MEMBER, towards(11, assignment(t=(1,), u=(9,)), topic_ids=only_t, reported=()))
        assert after.assigned == owned(10, t=(1,))


class TestAStateOfANewerBroker:
    """MemberState.UNKNOWN: only the log can bring it."""

    member = replace(MEMBER, state=MemberState.UNKNOWN)

    @pytest.mark.parametrize("said", [None, reported(t=(1,))])
    def test_the_member_must_come_again_with_nothing_g4(self, said: Any) -> None:
        with pytest.raises(Refused) as refused:
            reconcile(self.member, towards(11, assignment(t=(1,)), reported=said))
        assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH

    def test_with_nothing_it_is_brought_to_its_target_g4(self) -> None:
        after = reconcile(self.member, towards(11, assignment(t=(1, 3)), reported=()))
        assert (after.state, after.epoch, after.assigned) == (STABLE, 11, {topic_id("t"): {1: 10, 3: 11}})
